// Command copyin measures a batch producer: COPY into dispatcherd.jobs in one
// transaction, with indexes and triggers in place and an idle dispatcher that is
// subscribed to notifications.
//
//	go run ./copyin [-n 1000000] [-rounds 5]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

func main() {
	n := flag.Int("n", 1_000_000, "jobs per COPY")
	rounds := flag.Int("rounds", 5, "how often")
	flag.Parse()
	program.Main("copyin", func(ctx context.Context) error { return run(ctx, *n, *rounds) })
}

func run(ctx context.Context, n, rounds int) (err error) {
	r, err := rig.Start(ctx, rig.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var rates []float64
	for i := range rounds {
		rate, err := r.CopyIn(ctx, r.Own, n)
		if err != nil {
			return err
		}
		fmt.Printf("round %d/%d  %8.0f jobs/s\n", i+1, rounds, rate)
		rates = append(rates, rate)
	}
	s := stats.Summarise(rates)
	fmt.Printf("copyin: jobs=%d median=%.0f least=%.0f most=%.0f\n", n, s.Median, s.Min, s.Max)
	return nil
}
