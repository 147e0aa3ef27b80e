// Command schedules measures schedules: kills of the controller, a burst, plain jobs beside one, idle schedules, and
// daylight saving time. All figures come from rows of Postgres, except memory and the number of statements. It prints one line
// and exits with 1 if a value is out of range.
package main

import (
	"context"
	"flag"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

type options struct {
	lasts  time.Duration
	burst  int
	plain  int
	rounds int
	idle   int
	minute time.Duration
	cases  int
}

func main() {
	var o options
	parts := flag.String("parts", figure.Names(o.parts()), "parts to run, separated by commas")
	short := flag.Bool("short", false, "run a shorter form of all parts")
	flag.DurationVar(&o.lasts, "kills", 10*time.Minute, "kills: how long the controller is killed")
	flag.IntVar(&o.burst, "burst", 10_000, "burst: schedules due in one second")
	flag.IntVar(&o.plain, "plain", 100_000, "plain: schedules due in one second")
	flag.IntVar(&o.rounds, "rounds", 3, "plain: bursts, one every two minutes")
	flag.IntVar(&o.idle, "idle", 100_000, "idle: schedules")
	flag.DurationVar(&o.minute, "minute", time.Minute, "idle: how long statements are counted")
	flag.IntVar(&o.cases, "cases", 2000, "dst: cases per time zone")
	flag.Parse()
	if *short {
		o.lasts, o.minute, o.cases, o.rounds = 45*time.Second, 15*time.Second, 100, 1
	}
	figure.Main("schedules", *parts, o.parts())
}

// parts returns the parts in their order.
func (o *options) parts() []figure.Part {
	on := func(name string, run func(context.Context, *rig.Rig) (figure.Figures, error)) figure.Part {
		return figure.OnRig(name, rig.Options{Faults: true}, func(ctx context.Context, r *rig.Rig) (f, _ figure.Figures, err error) {
			f, err = run(ctx, r)
			return f, nil, err
		})
	}
	return []figure.Part{
		on("kills", func(ctx context.Context, r *rig.Rig) (figure.Figures, error) { return Kills(ctx, r, o.lasts) }),
		on("burst", func(ctx context.Context, r *rig.Rig) (figure.Figures, error) { return Burst(ctx, r, o.burst) }),
		on("plain", func(ctx context.Context, r *rig.Rig) (figure.Figures, error) {
			return BurstPlain(ctx, r, o.plain, o.rounds)
		}),
		on("idle", func(ctx context.Context, r *rig.Rig) (figure.Figures, error) { return Idle(ctx, r, o.idle, o.minute) }),
		{Name: "dst", Run: func(context.Context) (f, _ figure.Figures, err error) {
			f, err = DST(o.cases)
			return f, nil, err
		}},
	}
}
