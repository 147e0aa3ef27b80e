package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

const (
	busySlots = 64
	leastBusy = 0.9                    // share of the polls at which no slot may be free
	lookEvery = 200 * time.Millisecond // a poll costs the daemon a millisecond
)

var errIdleSlots = errors.New("the backlog did not keep the slots busy, so the figures are invalid")

// measureBusy sends requests while a backlog keeps every slot busy.
func measureBusy(ctx context.Context, r *rig.Rig, p plan, flags []string) (took []float64, err error) {
	dsn, err := r.FreshJobs(ctx, "busy")
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, dsn, p.backlog); err != nil {
		return nil, err
	}
	if err := r.Settle(ctx, dsn); err != nil {
		return nil, err
	}
	s, err := open(ctx, r, dsn, busySlots, flags)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if _, err := sample(s.caller.ask, until(p.busy/10)); err != nil {
		return nil, err
	}
	return s.askBusy(ctx, p)
}

func (s *scene) askBusy(ctx context.Context, p plan) ([]float64, error) {
	watch, stop := context.WithTimeout(ctx, p.busy)
	defer stop()
	watched := make(chan occupation, 1)
	go func() { watched <- s.occupied(watch) }()
	before, err := s.daemon.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	took, err := sample(s.caller.ask, until(p.busy))
	if err != nil {
		return nil, err
	}
	lasted := time.Since(began)
	after, err := s.daemon.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	o := <-watched
	done := after.Done() - before.Done()
	fmt.Printf(
		"busy: %d requests, p50 %.0f µs, while %.0f queued jobs of %v were done in %.1f s by %d slots, none of them free in %d of "+
			"%d polls; %.0f of %d jobs were left\n",
		len(took),
		stats.Quantile(took, 0.5), done, jobLength, lasted.Seconds(), busySlots, o.full, o.looks,
		float64(p.backlog)-after.Done(), p.backlog,
	)
	if float64(o.full) < leastBusy*float64(o.looks) {
		return nil, errIdleSlots
	}
	return took, nil
}

// occupation counts polls of the slots.
type occupation struct{ looks, full int }

// occupied polls the slots until ctx ends. A slot whose next job is being claimed
// does not count as free, because no request can use it.
func (s *scene) occupied(ctx context.Context) (o occupation) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return o
		case <-tick.C:
		}
		if m, err := s.daemon.Metrics(ctx); err == nil {
			o.looks++
			if m.State("slots_free") == 0 {
				o.full++
			}
		}
	}
}

func until(d time.Duration) func(int) bool {
	end := time.Now().Add(d)
	return func(int) bool { return !time.Now().Before(end) }
}

// fill inserts the backlog.
func fill(ctx context.Context, dsn string, n int) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, payload)
		SELECT $1, jsonb_build_object('n', g) FROM generate_series(1, $2::int) g`, jobType, n)
	return err
}
