// Command flows measures batches, flows, children, fan-outs and unique jobs: their cost, their latency, and what holds while processes
// are killed. It prints one line, and a second one with details, and exits with 1 if a value is out of range.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rate"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

type options struct {
	parts    string
	base     string
	short    bool
	members  int
	faults   int
	children int
	layers   int
	chain    int
	fanOuts  int
	keys     int
}

func main() {
	var o options
	flag.StringVar(
		&o.parts,
		"parts",
		"",
		"parts to run, separated by commas; empty = all, or all but plain with -short, which is too short for its range",
	)
	flag.StringVar(&o.base, "base", "", "plain: commit to compare with; empty = the last one without batches and flows")
	flag.BoolVar(&o.short, "short", false, "run a shorter form of all parts")
	flag.IntVar(&o.members, "members", 1_000_000, "batch: members")
	flag.IntVar(&o.faults, "faults", 1_000_000, "faults: jobs")
	flag.IntVar(&o.children, "children", 10_000, "cancel: children")
	flag.IntVar(&o.layers, "layers", 100, "dag: layers of 100 nodes")
	flag.IntVar(&o.chain, "chain", 10_000, "chain: nodes")
	flag.IntVar(&o.fanOuts, "fanouts", 20_000, "fanout: fan-outs")
	flag.IntVar(&o.keys, "keys", 100_000, "unique: keys")
	flag.Parse()
	const shortParts = "batch,faults,cancel,dag,chain,fanout,unique"
	if o.short {
		o.members, o.faults, o.layers, o.chain, o.fanOuts, o.keys = 50_000, 15_000, 50, 1000, 2000, 10_000
		o.parts = cmp.Or(o.parts, shortParts)
	}
	o.parts = cmp.Or(o.parts, "plain,"+shortParts)
	os.Exit(figure.Report("flows", func(ctx context.Context) (figures, details figure.Figures, err error) {
		all, err := run(ctx, o)
		return all.figures, all.details, err
	}))
}

// results are the figures of the line, and further ones.
type results struct{ figures, details figure.Figures }

var errPart = errors.New("the parts are plain, batch, faults, cancel, dag, chain, fanout and unique")

// run runs the parts and returns all figures so far. Faults has a server of its own, whose recovery is short.
func run(ctx context.Context, o options) (all results, err error) {
	var (
		env      *stage.Environment
		settings map[string]string
	)
	defer func() {
		if env != nil {
			err = errors.Join(err, env.Close())
		}
	}()
	for part := range slices.Values(strings.Split(o.parts, ",")) {
		wanted := rate.Settings
		if part == "faults" {
			wanted = nil
		}
		if env != nil && (wanted == nil) != (settings == nil) {
			if err := env.Close(); err != nil {
				return all, err
			}
			env = nil
		}
		if env == nil {
			if env, err = stage.OpenWith(ctx, wanted); err != nil {
				return all, err
			}
			settings = wanted
		}
		found, err := runPart(ctx, env, o, part)
		all.figures, all.details = append(all.figures, found.figures...), append(all.details, found.details...)
		if err != nil {
			return all, fmt.Errorf("%s: %w", part, err)
		}
	}
	return all, nil
}

func runPart(ctx context.Context, env *stage.Environment, o options, part string) (r results, err error) {
	switch part {
	case "plain":
		r.figures, r.details, err = plain(ctx, env, o)
	case "batch":
		r.figures, r.details, err = Batch(ctx, env, o.members)
	case "faults":
		r.figures, r.details, err = Faults(ctx, env, o.faults)
	case "cancel":
		r.figures, r.details, err = Cancel(ctx, env, o.children)
	case "dag":
		r.figures, r.details, err = DAG(ctx, env, o.layers, 100)
	case "chain":
		r.figures, r.details, err = Chain(ctx, env, o.chain)
	case "fanout":
		r.figures, r.details, err = FanOut(ctx, env, o.fanOuts)
	case "unique":
		r.figures, r.details, err = Unique(ctx, env, o.keys)
	default:
		err = fmt.Errorf("-parts %q: %w", part, errPart)
	}
	return r, err
}

// plain compares jobs outside of structures with another commit.
func plain(ctx context.Context, env *stage.Environment, o options) (figures, details figure.Figures, err error) {
	jobs, copied, err := rate.Plain(ctx, env.Root, o.base, "migrations/sql/*_structure.sql", o.short)
	return figure.Figures{figure.AtLeast("plain", jobs, 0.97)}, figure.Figures{figure.AtLeast("copy", copied, 0.95)}, err
}
