package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
)

func main() {
	if len(os.Args) == 5 && os.Args[1] == proxyServer {
		program.Main("peers", func(ctx context.Context) error { return serveProxy(ctx, os.Args[2], os.Args[3], os.Args[4]) })
		return
	}
	var o options
	var only string
	flag.BoolVar(&o.short, "short", false, "fewer jobs and rounds: under six minutes")
	flag.StringVar(&o.output, "o", "table", "table or json")
	flag.IntVar(&o.jobs, "jobs", 0, "jobs per run (default 500000, short 200000)")
	flag.IntVar(&o.rounds, "rounds", 0, "runs of each contestant (default 5, short 4)")
	flag.StringVar(&only, "only", "", "contestants to run, separated by commas (default all)")
	var delays string
	flag.StringVar(&delays, "distance", "", "round-trip delays to Postgres, separated by commas: compare the rates over them")
	flag.StringVar(&o.flags, "flags", "", "further flags of the daemon, separated by spaces")
	flag.Parse()
	o.complete(only)
	program.Main("peers", func(ctx context.Context) error {
		if delays != "" {
			return runDistances(ctx, o, delays)
		}
		return run(ctx, o)
	})
}

type options struct {
	short        bool
	output       string
	jobs, rounds int
	only         []string
	flags        string
}

func (o *options) complete(only string) {
	jobs, rounds := 500_000, 5
	if o.short {
		jobs, rounds = 200_000, 4
	}
	if o.jobs <= 0 {
		o.jobs = jobs
	}
	if o.rounds <= 0 {
		o.rounds = rounds
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf("-o is %q, give table or json", o.output)
	}
	all, err := choose(o.only)
	if err != nil {
		return err
	}
	e, err := newArena(ctx, o, all)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.rig.Close()) }()
	rounds, err := e.fight(ctx, all)
	if err != nil {
		return err
	}
	return report(e, all, rounds)
}

// choose returns the named contestants, or all if no name is given.
func choose(names []string) ([]contestant, error) {
	if len(names) == 0 {
		return contestants, nil
	}
	var some []contestant
	for _, name := range names {
		i := slices.IndexFunc(contestants, func(c contestant) bool { return c.name == name })
		if i < 0 {
			var known []string
			for _, c := range contestants {
				known = append(known, c.name)
			}
			return nil, fmt.Errorf("there is no contestant %q; there are %s", name, strings.Join(known, ", "))
		}
		some = append(some, contestants[i])
	}
	return some, nil
}
