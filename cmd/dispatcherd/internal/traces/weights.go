package traces

import (
	"strings"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// namedWeights are weights with the text of their flag.
type namedWeights struct {
	name    string
	weights scoring.Weights
}

const weightsSyntax = "article (without the cap), default (of the daemon), or comma-separated changes of the default, " +
	"key=value, with the keys " +
	"priority, ageing, rarity, on-demand, on-demand-ageing, on-demand-cap (a duration, or none)"

// parseWeights parses weightsSyntax.
func parseWeights(text string) (namedWeights, error) {
	w := scoring.Default()
	switch text {
	case "default":
	case "article":
		w.OnDemandCap = scoring.NoCap
	default:
		weights, limit := cli.Weights(&w), cli.Cap(&w.OnDemandCap)
		for pair := range strings.SplitSeq(text, ",") {
			set := weights.Parse
			value, isCap := strings.CutPrefix(pair, "on-demand-cap=")
			if isCap {
				pair, set = value, limit.Parse
			}
			if err := set(pair); err != nil {
				return namedWeights{}, exit.Usagef("--weights %s: %w", text, err)
			}
		}
	}
	if err := w.Validate(); err != nil {
		return namedWeights{}, exit.Usagef("--weights %s: %w", text, err)
	}
	return namedWeights{text, w}, nil
}
