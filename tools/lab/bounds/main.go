// Command bounds drives each bound of the core to its limit and measures the longest
// step of the loop.
//
//	go run ./bounds [-rounds 3] [-only NAME] [-introspect]
//
// With -introspect it measures instead how long the portions of lists, explanations and
// metrics keep the loop of a dispatcher that places jobs.
//
// The core is deterministic, so each round makes the same steps. The duration of a
// step is the processor time of its thread, and the shortest one of all rounds. So
// neither other processes nor an interruption by the garbage collector counts.
package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
)

// most is the required bound of each step.
const most = 5 * time.Millisecond

func main() {
	rounds := flag.Int("rounds", 3, "rounds of each scene")
	only := flag.String("only", "", "run only the scenes whose name contains this text")
	ask := flag.Bool("introspect", false, "measure answers instead of bounds")
	flag.Parse()
	program.Main("bounds", func(ctx context.Context) error {
		if *ask {
			return introspect(*rounds)
		}
		return run(ctx, *rounds, *only)
	})
}

func run(ctx context.Context, rounds int, only string) error {
	var longest step
	of := ""
	for _, s := range scenes {
		if !strings.Contains(s.name, only) {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		steps := measure(s.play, rounds)
		worst, total := longestOf(steps)
		fmt.Printf("%-44s %7d steps %8.1f ms in all, longest %6.2f ms (%s)\n", s.name, len(steps), ms(total), ms(worst.took), worst.event)
		if worst.took > longest.took {
			longest, of = worst, s.name
		}
	}
	fmt.Printf("bounds: longest_step_ms=%.2f of=%q event=%s\n", ms(longest.took), of, longest.event)
	if longest.took > most {
		return fmt.Errorf("a step took %v, more than %v", longest.took, most)
	}
	return nil
}

// measure plays a scene several times and returns the shortest duration of each step.
func measure(play func(*driver), rounds int) (shortest []step) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range rounds {
		d := newDriver(nil)
		play(d)
		if shortest == nil {
			shortest = d.steps
		}
		for i := range min(len(shortest), len(d.steps)) {
			shortest[i].took = min(shortest[i].took, d.steps[i].took)
		}
		runtime.GC()
	}
	return shortest
}

func longestOf(steps []step) (worst step, total time.Duration) {
	for _, s := range steps {
		total += s.took
		if s.took > worst.took {
			worst = s
		}
	}
	return worst, total
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
