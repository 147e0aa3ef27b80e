// Command schedules measures schedules: kills of the controller, a burst, plain jobs beside one, idle schedules, and
// daylight saving time. It prints one line and exits with 1 if a value is out of range.
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
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

type options struct {
	parts  string
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
	short := flag.Bool("short", false, "run a shorter form of all parts")
	flag.StringVar(&o.parts, "parts", "kills,burst,plain,idle,dst", "parts to run, separated by commas")
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
	os.Exit(figure.Report("schedules", func(ctx context.Context) (figures, details figure.Figures, err error) {
		figures, err = run(ctx, o)
		return figures, nil, err
	}))
}

var errPart = errors.New("the parts are kills, burst, plain, idle and dst")

// run runs the parts and returns all figures so far.
func run(ctx context.Context, o options) (all Figures, err error) {
	env, err := stage.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, env.Close()) }()
	parts := map[string]func() (Figures, error){
		"kills": func() (Figures, error) { return Kills(ctx, env, o.lasts) },
		"burst": func() (Figures, error) { return Burst(ctx, env, o.burst) },
		"plain": func() (Figures, error) { return BurstPlain(ctx, env, o.plain, o.rounds) },
		"idle":  func() (Figures, error) { return Idle(ctx, env, o.idle, o.minute) },
		"dst":   func() (Figures, error) { return DST(o.cases) },
	}
	for part := range slices.Values(strings.Split(o.parts, ",")) {
		if parts[part] == nil {
			return all, fmt.Errorf("-parts %q: %w", part, errPart)
		}
		figures, err := parts[part]()
		if all = append(all, figures...); err != nil {
			return all, fmt.Errorf("%s: %w", part, err)
		}
	}
	return all, nil
}
