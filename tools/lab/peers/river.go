package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/riverqueue"
)

// noopWorker records when its first job starts.
type noopWorker struct {
	river.WorkerDefaults[riverqueue.Noop]
	begun *atomic.Int64 // nanoseconds since 1970; 0 = no job yet
}

// Work implements river.Worker.
func (w *noopWorker) Work(context.Context, *river.Job[riverqueue.Noop]) error {
	if w.begun.Load() == 0 {
		w.begun.CompareAndSwap(0, time.Now().UnixNano())
	}
	return nil
}

func fillRiver(ctx context.Context, _ *arena, dsn string, n int) error {
	pool, err := riverqueue.Pool(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := riverqueue.Migrate(ctx, pool); err != nil {
		return err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), riverqueue.Config())
	if err != nil {
		return err
	}
	const step = 10_000
	for first := 0; first < n; first += step {
		params := make([]river.InsertManyParams, min(step, n-first))
		for i := range params {
			params[i].Args = riverqueue.Noop{N: first + i}
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

func drainRiverTuned(ctx context.Context, _ *arena, dsn string, n int) (span, error) {
	return drainRiver(ctx, dsn, n, func(c *river.Config) {
		riverqueue.Tune(c)
		riverqueue.Serve(c, 1000)
	})
}

func drainRiverDefault(ctx context.Context, _ *arena, dsn string, n int) (span, error) {
	return drainRiver(ctx, dsn, n, func(c *river.Config) {
		riverqueue.Serve(c, 1000)
	})
}

func drainRiver(ctx context.Context, dsn string, n int, change func(*river.Config)) (s span, err error) {
	pool, err := riverqueue.Pool(ctx, dsn)
	if err != nil {
		return s, err
	}
	defer pool.Close()
	var begun atomic.Int64
	config := riverqueue.Config()
	change(config)
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, &noopWorker{begun: &begun})
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return s, err
	}
	// River sends these events when the end of a job is in Postgres.
	ends, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: n + 1, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	defer unsubscribe()
	if err := client.Start(ctx); err != nil {
		return s, err
	}
	if err := await(ctx, ends, n); err != nil {
		return s, err
	}
	s = span{from: time.Unix(0, begun.Load()), to: time.Now()}
	if err := client.Stop(ctx); err != nil {
		return s, err
	}
	return s, verifyRiver(ctx, pool, n)
}

func await(ctx context.Context, ends <-chan *river.Event, n int) error {
	for range n {
		select {
		case <-ends:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func verifyRiver(ctx context.Context, pool *pgxpool.Pool, n int) error {
	rows, err := pool.Query(ctx, `SELECT count(*) FROM river_job WHERE state = 'completed'`)
	if err != nil {
		return err
	}
	done, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err == nil && done != n {
		err = fmt.Errorf("%d of %d jobs are done", done, n)
	}
	return err
}
