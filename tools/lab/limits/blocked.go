package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

const (
	raised  = 1000 // the capacity afterwards
	slowJob = 10 * time.Minute
)

// Blocked measures the rate of jobs without keys beside many jobs of one key that wait, as a share of the rate without those.
// Then it raises the capacity of the key and measures until it is used.
func Blocked(ctx context.Context, env *rig.Rig, blocked, n int) (figures, details figure.Figures, err error) {
	o := stage.Timed("blocked", 1, 4, 250)
	o.Types = []string{"work", "slow"}
	o.Offers = append(o.Offers, stage.Offer{Slots: raised/4 + 1, Types: o.Types[1:]})
	beside, err := stage.Start(ctx, env, o)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, beside.Close(ctx)) }()
	o.Name = "unblocked"
	alone, err := stage.Start(ctx, env, o)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, alone.Close(ctx)) }()
	if err := beside.Exec(
		ctx,
		`INSERT INTO dispatcherd.limits (key, capacity) VALUES ('blocked', 1)`,
		fmt.Sprintf(
			`INSERT INTO dispatcherd.jobs (type, payload, keys) SELECT 'slow', '{"ms": %d}', 'blocked' FROM generate_series(1, %d)`,
			slowJob.Milliseconds(),
			blocked,
		),
		`ANALYZE`,
	); err != nil {
		return nil, nil, err
	}
	if _, err := until(ctx, beside, 1); err != nil {
		return nil, nil, err
	}
	ratio, err := rig.Compare("blocked1m", func(with bool) (float64, error) {
		if with {
			return stage.Jobs{N: n}.Drain(ctx, beside)
		}
		return stage.Jobs{N: n}.Drain(ctx, alone)
	})
	if err != nil {
		return nil, nil, err
	}
	if err := beside.Exec(ctx, fmt.Sprintf(`UPDATE dispatcherd.limits SET capacity = %d WHERE key = 'blocked'`, raised)); err != nil {
		return nil, nil, err
	}
	took, err := until(ctx, beside, raised)
	return figure.Figures{figure.AtLeast("blocked1m", ratio, 0.95)}, figure.Figures{figure.AtMost("saturated_s", took.Seconds(), 2)}, err
}

// until waits until n jobs of the key run. It returns the time that this took.
func until(ctx context.Context, st *stage.Stage, n int) (took time.Duration, err error) {
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for begun := time.Now(); ; {
		var running int
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.jobs_live WHERE keys IS NOT NULL AND fence > 0 AND status = 'running'`).
			Scan(&running); err != nil {
			return 0, err
		}
		took = time.Since(begun)
		if running == n || took > time.Minute {
			return took, nil
		}
		if running > n {
			return took, fmt.Errorf("%d jobs run, and the capacity is %d", running, n)
		}
		if err := rig.Pause(ctx, 10*time.Millisecond); err != nil {
			return took, err
		}
	}
}
