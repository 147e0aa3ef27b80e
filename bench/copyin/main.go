// Command copyin measures a batch producer: COPY into dispatcherd.jobs in one
// transaction, with indexes and triggers in place and an idle dispatcher that is
// subscribed to notifications.
//
//	go run ./copyin [-n 1000000] [-rounds 5] [-daemon FILE]
//
// It writes results/copyin.json.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dispatcherd/dispatcherd/bench/internal/program"
	"github.com/dispatcherd/dispatcherd/bench/internal/rig"
	"github.com/dispatcherd/dispatcherd/bench/internal/stats"
)

func main() {
	n := flag.Int("n", 1_000_000, "jobs per COPY")
	rounds := flag.Int("rounds", 5, "how often")
	daemon := flag.String("daemon", "", "an existing dispatcherd binary instead of the checkout's")
	flag.Parse()
	program.Main("copyin", func(ctx context.Context) error { return run(ctx, *n, *rounds, *daemon) })
}

type result struct {
	Jobs int           `json:"jobs"`
	Rate stats.Summary `json:"jobs_per_second"`
	Runs []float64     `json:"runs"`
}

const database = "copyin"

func run(ctx context.Context, n, rounds int, daemon string) (err error) {
	r, err := rig.Start(ctx, rig.Options{Daemon: daemon})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	lines := rig.Lines(n, 1)
	res := result{Jobs: n}
	for i := range rounds {
		rate, err := once(ctx, r, lines, n)
		if err != nil {
			return err
		}
		fmt.Printf("round %d/%d  %8.0f jobs/s\n", i+1, rounds, rate)
		res.Runs = append(res.Runs, rate)
	}
	res.Rate = stats.Summarise(res.Runs)
	fmt.Printf("copyin: jobs=%d median=%.0f least=%.0f most=%.0f\n", n, res.Rate.Median, res.Rate.Min, res.Rate.Max)
	text, err := json.MarshalIndent(res, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.Bench, "results", "copyin.json"), append(text, '\n'), 0o644)
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
