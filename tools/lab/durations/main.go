// Command durations measures expected durations: the waits of recorded workloads with exact, rough, false and
// no expected durations, whether a job is passed by more than W, and the time of a fetch. It prints one line
// and exits with 1 if a value is out of range.
package main

import (
	"cmp"
	"context"
	"flag"
	"os"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/regression"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

type options struct {
	plain     regression.Plan
	traces    string
	replicas  uint64
	histories int
	rows      int
}

func main() {
	o := options{replicas: 8, histories: 1_000_000, rows: 1_000_000}
	flag.BoolVar(&o.plain.Short, "short", false, "run a shorter form of all parts")
	parts := flag.String("parts", figure.Names(o.parts()), "parts to run, separated by commas")
	flag.StringVar(&o.plain.Base, "base", regression.Base, "plain: commit to compare with")
	flag.StringVar(&o.traces, "traces", cmp.Or(os.Getenv("DISPATCHERD_TRACES"), "../../../shared/traces"),
		"folder with the recorded traces bank_january and openb33, which are not part of the project (docs/how-to/traces.md)")
	flag.Parse()
	if o.plain.Short {
		o.replicas, o.histories, o.rows = 1, 10_000, 100_000
	}
	figure.Main("durations", *parts, o.parts())
}

// parts returns the parts in their order.
func (o *options) parts() []figure.Part {
	return []figure.Part{
		{Name: "off", Run: func(context.Context) (f, _ figure.Figures, err error) {
			f, err = Off(o.traces)
			return f, nil, err
		}},
		{Name: "replays", Run: func(context.Context) (f, details figure.Figures, err error) { return Replays(o.traces, o.replicas) }},
		{Name: "random", Run: func(ctx context.Context) (f, _ figure.Figures, err error) {
			f, err = Random(ctx, o.histories)
			return f, nil, err
		}},
		figure.Plain("noop", &o.plain, 0.98, 0.97),
		figure.OnRig("fetch", rig.Options{}, func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Fetch(ctx, r, o.rows)
		}),
	}
}
