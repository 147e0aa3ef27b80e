package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/dispatcherd/dispatcherd/bench/internal/figure"
	"github.com/dispatcherd/dispatcherd/bench/internal/rig"
)

// cpu executes a table of jobs and prints the processor time per job of each part.
func (s *study) cpu(ctx context.Context) error {
	n, rounds := 500_000, 5
	if s.short {
		n, rounds = 150_000, 3
	}
	var windows []window
	for range rounds {
		w, err := s.drain(ctx, n)
		if err != nil {
			return err
		}
		windows = append(windows, w)
		fmt.Printf(
			"drain of %d: %7.0f jobs/s, CPU a job: Postgres %.2f + daemon %.2f + workers %.2f µs; claim %.1f ms × %.0f, finish %.1f ms × %.0f, fetch %.1f ms × %.0f\n",
			n,
			w.Rate,
			w.PostgresCPU,
			w.DaemonCPU,
			w.WorkersCPU,
			w.ClaimMean,
			w.ClaimRows,
			w.FinishMean,
			w.FinishRows,
			w.FetchMean,
			w.FetchRows,
		)
	}
	parts := []float64{
		middle(windows, func(w window) float64 { return w.PostgresCPU }),
		middle(windows, func(w window) float64 { return w.DaemonCPU }),
		middle(windows, func(w window) float64 { return w.WorkersCPU }),
	}
	svg := figure.Bars("Processor time of one job that does nothing", "µs", []string{"Postgres", "daemon", "workers"},
		[]figure.Bar{{Name: "dispatcherd", Parts: parts}})
	return keep(s.rig.Bench, "cpu", windows, svg)
}

// drain executes n jobs without a producer.
func (s *study) drain(ctx context.Context, n int) (w window, err error) {
	one := usual
	one.Backlog, one.feed = n, false
	l, err := start(ctx, s.rig, one)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	from, err := l.crews[0].Begun()
	if err != nil {
		return w, err
	}
	to, err := l.daemons[0].AwaitDone(ctx, n)
	if err != nil {
		return w, err
	}
	after, err := l.read(ctx)
	if err != nil {
		return w, err
	}
	// All processor time of these processes counts, including their start.
	w = between(reading{at: from, metrics: rig.Metrics{}, postgres: l.before}, after)
	w.Seconds = to.Sub(from).Seconds()
	w.Rate = float64(n) / w.Seconds
	return w, rig.Verify(ctx, l.dsn, n)
}
