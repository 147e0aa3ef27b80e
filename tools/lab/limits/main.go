// Command limits measures keys and limits: their cost, what holds while processes are killed, hand-off, deep queues, rates and
// takeovers. It prints one line, and a second one with details, and exits with 1 if a value is out of range.
package main

import (
	"context"
	"flag"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/hostile"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/regression"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

type options struct {
	plain   regression.Plan
	jobs    int
	faults  int
	handoff int
	blocked int
	count   int
	rate    time.Duration
	hostile float64
}

func main() {
	var o options
	parts := flag.String("parts", figure.Names(o.parts()), "parts to run, separated by commas")
	flag.StringVar(&o.plain.Base, "base", regression.Base, "plain: commit to compare with")
	flag.BoolVar(&o.plain.Short, "short", false, "run a shorter form of all parts")
	flag.IntVar(&o.jobs, "jobs", 500_000, "keyed, blocked: jobs of each run")
	flag.IntVar(&o.faults, "faults", 1_050_000, "faults: jobs")
	flag.IntVar(&o.handoff, "handoff", 20_000, "handoff: jobs")
	flag.IntVar(&o.blocked, "blocked", 1_000_000, "blocked: jobs that wait")
	flag.IntVar(&o.count, "count", 1_000_000, "count: additions")
	flag.DurationVar(&o.rate, "rate", 10*time.Minute, "rate: how long jobs start")
	flag.Float64Var(&o.hostile, "hostile", 1, "hostile: size of the attacks, relative to the full one")
	flag.Parse()
	if o.plain.Short {
		o.jobs, o.faults, o.handoff, o.blocked, o.count, o.rate = 50_000, 60_000, 2000, 100_000, 20_000, time.Minute
		o.hostile = 0.02
	}
	figure.Main("limits", *parts, o.parts())
}

// parts returns the parts in their order.
func (o *options) parts() []figure.Part {
	measured := rig.Options{}
	return []figure.Part{
		figure.Plain("keyless", &o.plain, 0.97, 0.95),
		figure.OnRig("keyed", measured, func(ctx context.Context, r *rig.Rig) (figures, details figure.Figures, err error) {
			one, err := Keyed(ctx, r, "keyed", 1, o.jobs, 0.9)
			if err != nil {
				return nil, nil, err
			}
			four, err := Keyed(ctx, r, "keyed4", 4, o.jobs, 0.5)
			return append(one, four...), nil, err
		}),
		figure.OnRig("faults", rig.Options{Faults: true}, func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Faults(ctx, r, o.faults)
		}),
		figure.OnRig("handoff", measured, func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Handoff(ctx, r, o.handoff)
		}),
		figure.OnRig("blocked", measured, func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Blocked(ctx, r, o.blocked, o.jobs)
		}),
		figure.OnRig("rate", measured, func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Rate(ctx, r, o.rate)
		}),
		figure.OnRig("takeover", measured, Takeover),
		figure.OnRig("count", measured, func(ctx context.Context, r *rig.Rig) (_, details figure.Figures, err error) {
			details, err = Count(ctx, r, o.count)
			return nil, details, err
		}),
		figure.OnRig("hostile", measured, func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return hostile.Measure(ctx, r, attacks(), o.hostile)
		}),
	}
}
