package traces

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// namedWeights are weights with the text of their flag.
type namedWeights struct {
	name    string
	weights scoring.Weights
}

const weightsSyntax = "article (without the cap), default (of the daemon), or comma-separated changes of the default, key=value, with the keys " +
	"priority, ageing, rarity, on-demand, on-demand-ageing, on-demand-cap (a duration, or none)"

// parseWeights parses weightsSyntax.
func parseWeights(text string) (namedWeights, error) {
	w := scoring.Default()
	switch text {
	case "default":
	case "article":
		w.OnDemandCap = scoring.NoCap
	default:
		for pair := range strings.SplitSeq(text, ",") {
			if err := setWeight(&w, pair); err != nil {
				return namedWeights{}, exit.Errorf(exit.Usage, "--weights %s: %w", text, err)
			}
		}
	}
	if err := w.Validate(); err != nil {
		return namedWeights{}, exit.Errorf(exit.Usage, "--weights %s: %w", text, err)
	}
	return namedWeights{text, w}, nil
}

func setWeight(w *scoring.Weights, pair string) error {
	points := map[string]*int64{
		"priority": &w.Priority, "ageing": &w.Ageing, "rarity": &w.Rarity,
		"on-demand": &w.OnDemand, "on-demand-ageing": &w.OnDemandAgeing,
	}
	key, value, ok := strings.Cut(pair, "=")
	if !ok {
		return fmt.Errorf("%q is not of the form key=value", pair)
	}
	if key == "on-demand-cap" {
		return setCap(w, value)
	}
	field := points[key]
	if field == nil {
		known := slices.Sorted(maps.Keys(points))
		return fmt.Errorf("unknown weight %q, give one of %s, on-demand-cap", key, strings.Join(known, ", "))
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return fmt.Errorf("weight %q is %q, give a whole number", key, value)
	}
	*field = n
	return nil
}

func setCap(w *scoring.Weights, value string) error {
	if value == "none" {
		w.OnDemandCap = scoring.NoCap
		return nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf(`weight "on-demand-cap" is %q, give a duration such as 256s, or none`, value)
	}
	w.OnDemandCap = d
	return nil
}
