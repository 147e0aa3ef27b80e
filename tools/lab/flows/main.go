// Command flows measures batches, flows, children, fan-outs and unique jobs: their cost, their latency, and what holds while processes
// are killed. It prints one line, and a second one with details, and exits with 1 if a value is out of range.
package main

import (
	"cmp"
	"context"
	"flag"
	"slices"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/hostile"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/regression"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

type options struct {
	plain    regression.Plan
	members  int
	faults   int
	children int
	layers   int
	chain    int
	fanOuts  int
	keys     int
	hostile  float64
}

func main() {
	var o options
	all := o.parts()
	wanted := flag.String("parts", "",
		"parts to run, separated by commas; empty = all, or all but plain with -short, which is too short for its range")
	flag.StringVar(&o.plain.Base, "base", regression.Base, "plain: commit to compare with")
	flag.BoolVar(&o.plain.Short, "short", false, "run a shorter form of all parts")
	flag.IntVar(&o.members, "members", 1_000_000, "batch: members")
	flag.IntVar(&o.faults, "faults", 1_000_000, "faults: jobs")
	flag.IntVar(&o.children, "children", 10_000, "cancel: children")
	flag.IntVar(&o.layers, "layers", 1000, "dag: layers of 10 nodes")
	flag.IntVar(&o.chain, "chain", 10_000, "chain: nodes")
	flag.IntVar(&o.fanOuts, "fanouts", 20_000, "fanout: fan-outs")
	flag.IntVar(&o.keys, "keys", 100_000, "unique: keys")
	flag.Float64Var(&o.hostile, "hostile", 1, "hostile: size of the attacks, relative to the full one (about 15 minutes, 10 GB of disk)")
	flag.Parse()
	parts := figure.Names(all)
	if o.plain.Short {
		o.members, o.faults, o.layers, o.chain, o.fanOuts, o.keys = 50_000, 15_000, 500, 1000, 2000, 10_000
		o.hostile = 0.01
		parts = figure.Names(all[1:])
	}
	figure.Main("flows", cmp.Or(*wanted, parts), all)
}

// parts returns the parts in their order.
func (o *options) parts() []figure.Part {
	on := func(name string, run func(context.Context, *rig.Rig) (figures, details figure.Figures, err error)) figure.Part {
		return figure.OnRig(name, rig.Options{Faults: name == "faults"}, run)
	}
	return []figure.Part{
		figure.Plain("plain", &o.plain, 0.97, 0.95),
		on("batch", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Batch(ctx, r, o.members)
		}),
		on("faults", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Faults(ctx, r, o.faults)
		}),
		on("cancel", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return Cancel(ctx, r, o.children)
		}),
		on("dag", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return DAG(ctx, r, o.layers, 10)
		}),
		on("chain", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) { return Chain(ctx, r, o.chain) }),
		on("fanout", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			return FanOut(ctx, r, o.fanOuts)
		}),
		on("unique", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) { return Unique(ctx, r, o.keys) }),
		on("hostile", func(ctx context.Context, r *rig.Rig) (_, _ figure.Figures, err error) {
			attacks := slices.Concat([]hostile.Attack{hostile.None}, hostile.FlowAttacks(), hostile.BatchAttacks())
			return hostile.Measure(ctx, r, attacks, o.hostile)
		}),
	}
}
