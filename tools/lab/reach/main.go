// Command reach measures what holds for workers on other hosts and for several dispatchers: the cost of sessions over TLS, what holds
// while the network fails and workers move, and how soon orders of operators take effect. It prints one line, and a second one with
// details, and exits with 1 if a value is out of range.
package main

import (
	"cmp"
	"context"
	"flag"
	"os"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// options are the sizes of the parts.
type options struct {
	sessions, jobs        int
	slow, rounds          int
	window                time.Duration
	partitions            []time.Duration
	partitionFlags        []string
	moves, killed         int
	requests, orders, day int
	traces                string
}

func main() {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case floodProcess:
			program.Main("reach", func(ctx context.Context) error { return serveFlood(ctx, os.Args[2:]) })
			return
		case hostProcess:
			program.Main("reach", func(ctx context.Context) error { return serveHost(ctx, os.Args[2]) })
			return
		}
	}
	if len(os.Args) == 2 && os.Args[1] == sinkProcess {
		program.Main("reach", serveSink)
		return
	}
	o := options{
		sessions: 10_000, jobs: 300_000, slow: 10_000, rounds: 3, window: 20 * time.Second,
		partitions: []time.Duration{5 * time.Second, 20 * time.Second, time.Minute},
		moves:      10_000, killed: 1000, requests: 2000, orders: 20, day: 31,
	}
	short := flag.Bool("short", false, "run a shorter form of all parts")
	wanted := flag.String("parts", figure.Names(o.parts()), "parts to run, separated by commas")
	flag.StringVar(&o.traces, "traces", cmp.Or(os.Getenv("DISPATCHERD_TRACES"), "../../../shared/traces"),
		"folder with the recorded trace "+placementTrace+", which is not part of the project (docs/how-to/traces.md)")
	flag.Parse()
	if *short {
		o.sessions, o.jobs, o.slow, o.rounds, o.window = 1000, 50_000, 1000, 1, 5*time.Second
		o.partitions, o.partitionFlags = []time.Duration{time.Second, 6 * time.Second}, shortPartitions
		o.moves, o.killed, o.requests, o.orders, o.day = 1000, 400, 500, 3, 2
	}
	figure.Main("reach", *wanted, o.parts())
}

// parts returns the parts in their order.
func (o *options) parts() []figure.Part {
	type run = func(context.Context, *rig.Rig) (figures, details figure.Figures, err error)
	measured := func(name string, f run) figure.Part { return figure.OnRig(name, rig.Options{}, f) }
	broken := func(name string, f run) figure.Part { return figure.OnRig(name, rig.Options{Faults: true}, f) }
	return []figure.Part{
		measured("sessions", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Sessions(ctx, r, o.sessions)
		}),
		measured("throughput", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Throughput(ctx, r, o.jobs)
		}),
		measured("flood", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Flood(ctx, r, o.slow, o.rounds, o.window)
		}),
		measured("delay", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Delay(ctx, r, o.requests)
		}),
		measured("requests", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Requests(ctx, r, o.requests)
		}),
		measured("pause", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) { return Pause(ctx, r, o.orders) }),
		measured("drain", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) { return Drain(ctx, r, o.orders) }),
		broken("partitions", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Partitions(ctx, r, o.partitions, o.partitionFlags)
		}),
		broken("moves", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) { return Moves(ctx, r, o.moves) }),
		broken("kill", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) { return Kill(ctx, r, o.killed) }),
		broken("controls", Controls),
		measured("placement", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Placement(ctx, r, o.traces, o.day)
		}),
	}
}
