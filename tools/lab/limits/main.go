// Command limits measures keys and limits: their cost, what holds while processes are killed, hand-off, deep queues, rates and
// takeovers. It prints one line, and a second one with details, and exits with 1 if a value is out of range.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rate"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

type options struct {
	parts   string
	base    string
	short   bool
	jobs    int
	faults  int
	handoff int
	blocked int
	count   int
	rate    time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.parts, "parts", "plain,keyed,faults,handoff,blocked,rate,takeover,count", "parts to run, separated by commas")
	flag.StringVar(&o.base, "base", "", "plain: commit to compare with; empty = the last one without limits")
	flag.BoolVar(&o.short, "short", false, "run a shorter form of all parts")
	flag.IntVar(&o.jobs, "jobs", 500_000, "keyed, blocked: jobs of each run")
	flag.IntVar(&o.faults, "faults", 1_050_000, "faults: jobs")
	flag.IntVar(&o.handoff, "handoff", 20_000, "handoff: jobs")
	flag.IntVar(&o.blocked, "blocked", 1_000_000, "blocked: jobs that wait")
	flag.IntVar(&o.count, "count", 1_000_000, "count: additions")
	flag.DurationVar(&o.rate, "rate", 10*time.Minute, "rate: how long jobs start")
	flag.Parse()
	if o.short {
		o.jobs, o.faults, o.handoff, o.blocked, o.count, o.rate = 50_000, 60_000, 2000, 100_000, 20_000, time.Minute
	}
	os.Exit(figure.Report("limits", func(ctx context.Context) (figures, details figure.Figures, err error) {
		all, err := run(ctx, o)
		return all.figures, all.details, err
	}))
}

// results are the figures of the line, and further ones.
type results struct{ figures, details figure.Figures }

var errPart = errors.New("the parts are plain, keyed, faults, handoff, blocked, rate, takeover and count")

// run runs the parts and returns all figures so far.
func run(ctx context.Context, o options) (all results, err error) {
	for part := range slices.Values(strings.Split(o.parts, ",")) {
		found, err := runAlone(ctx, o, part)
		all.figures, all.details = append(all.figures, found.figures...), append(all.details, found.details...)
		if err != nil {
			return all, fmt.Errorf("%s: %w", part, err)
		}
	}
	return all, nil
}

// runAlone runs a part with a server of its own.
func runAlone(ctx context.Context, o options, part string) (r results, err error) {
	settings := rate.Settings
	if part == "faults" {
		settings = nil // a recovery shall be short
	}
	env, err := stage.OpenWith(ctx, settings)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, env.Close()) }()
	return runPart(ctx, env, o, part)
}

func runPart(ctx context.Context, env *stage.Environment, o options, part string) (r results, err error) {
	switch part {
	case "plain":
		var jobs, copied float64
		jobs, copied, err = rate.Plain(ctx, env.Root, o.base, "migrations/sql/00030_limits.sql", o.short)
		r.figures = figure.Figures{figure.AtLeast("keyless", jobs, 0.97), figure.AtLeast("copy", copied, 0.95)}
	case "keyed":
		if r.figures, err = Keyed(ctx, env, "keyed", 1, o.jobs, 0.9); err != nil {
			return r, err
		}
		var four figure.Figures
		four, err = Keyed(ctx, env, "keyed4", 4, o.jobs, 0.5)
		r.figures = append(r.figures, four...)
	case "faults":
		r.figures, r.details, err = Faults(ctx, env, o.faults)
	case "handoff":
		r.figures, r.details, err = Handoff(ctx, env, o.handoff)
	case "blocked":
		r.figures, r.details, err = Blocked(ctx, env, o.blocked, o.jobs)
	case "rate":
		r.figures, r.details, err = Rate(ctx, env, o.rate)
	case "takeover":
		r.figures, r.details, err = Takeover(ctx, env)
	case "count":
		r.details, err = Count(ctx, env, o.count)
	default:
		err = fmt.Errorf("-parts %q: %w", part, errPart)
	}
	return r, err
}
