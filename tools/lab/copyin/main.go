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

const database = "copyin"

func run(ctx context.Context, n, rounds int) (err error) {
	r, err := rig.Start(ctx, rig.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	lines := rig.Lines(n, 1)
	var rates []float64
	for i := range rounds {
		rate, err := once(ctx, r, lines, n)
		if err != nil {
			return err
		}
		fmt.Printf("round %d/%d  %8.0f jobs/s\n", i+1, rounds, rate)
		rates = append(rates, rate)
	}
	res := stats.Summarise(rates)
	fmt.Printf("copyin: jobs=%d median=%.0f least=%.0f most=%.0f\n", n, res.Median, res.Min, res.Max)
	return nil
}

// once copies into a new table. The idle slots support another type, so the
// dispatcher subscribes to notifications and does not read the jobs.
func once(ctx context.Context, r *rig.Rig, lines []byte, n int) (rate float64, err error) {
	dsn, err := r.FreshJobs(ctx, database)
	if err != nil {
		return 0, err
	}
	d, err := r.Daemon(ctx, dsn, "daemon")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	crew, err := r.IdleCrew(d.Workers)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, crew.Stop()) }()
	if err := rig.AwaitSubscribed(ctx, dsn); err != nil {
		return 0, err
	}
	if err := r.Settle(ctx, dsn); err != nil {
		return 0, err
	}
	return rig.CopyRate(ctx, dsn, lines, n)
}
