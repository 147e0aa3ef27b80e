package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// far are the contestants of a comparison over distance: the usual choices, and the
// bare SQL loop.
var far = []string{"dispatcherd", "graphile", "river", "pgboss", "floor"}

// competitors are the contestants of far with which dispatcherd is compared.
var competitors = []string{"graphile", "river", "pgboss"}

// runDistances executes the same jobs with several round-trip delays between the
// clients and Postgres.
func runDistances(ctx context.Context, o options, delays string) (err error) {
	if o.only == nil {
		o.only = far
	}
	all, err := choose(o.only)
	if err != nil {
		return err
	}
	a, err := newArena(ctx, o, all)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.rig.Close()) }()
	var roundTrips []time.Duration
	for text := range strings.SplitSeq(delays, ",") {
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		roundTrips = append(roundTrips, d)
	}
	rates, err := a.drainOverDistances(ctx, all, roundTrips)
	if err != nil {
		return err
	}
	printDistances(roundTrips, all, rates)
	return nil
}

// place is one contestant at one distance.
type place struct {
	roundTrip time.Duration
	name      string
}

// drainOverDistances runs every contestant at every distance in each round, so that
// a slow phase of the machine affects all of them.
func (a *arena) drainOverDistances(ctx context.Context, all []contestant, roundTrips []time.Duration) (map[place][]float64, error) {
	rates := map[place][]float64{}
	return rates, rig.Rounds(a.rounds, len(all)*len(roundTrips), func(round, i int) error {
		c, roundTrip := all[i%len(all)], roundTrips[i/len(all)]
		rate, err := a.drainAt(ctx, c, roundTrip)
		if err != nil {
			return fmt.Errorf("%s at %v: %w", c.name, roundTrip, err)
		}
		p := place{roundTrip, c.name}
		rates[p] = append(rates[p], rate)
		note("round %d/%d  %6v  %-14s %8.0f jobs/s", round+1, a.rounds, roundTrip, c.name, rate)
		return nil
	})
}

func (a *arena) drainAt(ctx context.Context, c contestant, roundTrip time.Duration) (rate float64, err error) {
	p, err := startProxy(a.rig.Postgres.URL(database), roundTrip)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	o, err := a.run(ctx, c, p)
	return o.Rate, err
}

// printDistances prints a table of medians, and one line for each distance:
//
//	distance: rtt=… dispatcherd=… own=… fastest=NAME … ratio=…
//
// own is the rate through that at the first distance.
func printDistances(roundTrips []time.Duration, all []contestant, rates map[place][]float64) {
	median := func(roundTrip time.Duration, name string) float64 {
		return stats.Quantile(rates[place{roundTrip, name}], 0.5)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "round trip\t")
	for _, c := range all {
		fmt.Fprintf(w, "%s\t", c.name)
	}
	fmt.Fprintln(w)
	for _, d := range roundTrips {
		fmt.Fprintf(w, "%v\t", d)
		for _, c := range all {
			fmt.Fprintf(w, "%.0f\t", median(d, c.name))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // writes to standard output do not fail
	for _, d := range roundTrips {
		fastest := slices.MaxFunc(competitors, func(x, y string) int { return int(median(d, x) - median(d, y)) })
		ours := median(d, "dispatcherd")
		fmt.Printf("distance: rtt=%v dispatcherd=%.0f own=%.2f fastest=%s %.0f ratio=%.2f\n",
			d, ours, ours/median(roundTrips[0], "dispatcherd"), fastest, median(d, fastest), ours/median(d, fastest))
	}
}
