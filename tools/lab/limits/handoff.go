package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rate"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// handoffSQL returns the median, the 99th percentile and the maximum of the time in milliseconds from the end of a job to the
// start of the next one of the only key, and the rate.
const handoffSQL = `
WITH gap AS (
	SELECT extract(epoch FROM started_at - lag(finished_at) OVER (ORDER BY started_at)) * 1000 AS ms
	FROM dispatcherd.jobs_done WHERE keys IS NOT NULL
)
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY ms), percentile_disc(0.99) WITHIN GROUP (ORDER BY ms), max(ms),
	(SELECT count(*) / extract(epoch FROM max(finished_at) - min(started_at)) FROM dispatcherd.jobs_done WHERE keys IS NOT NULL)
FROM gap`

// gaps are the results of handoffSQL.
type gaps struct{ p50, p99, most, rate float64 }

// Handoff measures the time from the end of a job of a serial key to the start of the next one: on the controller, on another
// dispatcher, and there without notifications.
func Handoff(ctx context.Context, env *stage.Environment, n int) (figures, details figure.Figures, err error) {
	local, err := handoff(ctx, env, rate.Setup("handoff", 1, 1, 10), n)
	if err != nil {
		return nil, nil, err
	}
	far := rate.Setup("remote", 2, 1, 10)
	far.Idle = 1
	remote, err := handoff(ctx, env, far, n/5)
	if err != nil {
		return nil, nil, err
	}
	far = rate.Setup("polled", 2, 1, 10, "--listen=false")
	far.Idle = 1
	polled, err := handoff(ctx, env, far, 30)
	return figure.Figures{
		figure.AtMost(
			"handoff_p50_ms",
			local.p50,
			3,
		),
		figure.AtMost("handoff_p99_ms", local.p99, 15),
		figure.AtLeast("serial_per_s", local.rate, 250),
		figure.AtMost("remote_handoff_p99_ms", remote.p99, 50),
	}, figure.Figures{figure.AtMost("remote_handoff_p50_ms", remote.p50, 50), figure.AtMost("polled_handoff_max_ms", polled.most, 2200)}, err
}

func handoff(ctx context.Context, env *stage.Environment, o stage.Setup, n int) (g gaps, err error) {
	st, err := env.Start(ctx, o)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return g, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := becomeController(ctx, st, conn, 0); err != nil {
		return g, err
	}
	if _, err := (rate.Jobs{N: n, Column: "keys", Value: `'serial'`}).Drain(ctx, st); err != nil {
		return g, err
	}
	return g, conn.QueryRow(ctx, handoffSQL).Scan(&g.p50, &g.p99, &g.most, &g.rate)
}

var errController = errors.New("the dispatcher has not become the controller")

// becomeController restarts other daemons until the given one is the controller.
func becomeController(ctx context.Context, st *stage.Stage, conn *pgx.Conn, wanted int) error {
	for range 40 {
		found, err := controller(ctx, st, conn)
		if err != nil || found == wanted {
			return err
		}
		if found >= 0 { // it gives the role back, and another one takes it at its next heartbeat
			if err := st.Daemons[found].Restart(ctx); err != nil {
				return err
			}
		}
		if err := stage.Pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w", st.Daemons[wanted].Name, errController)
}

// controller returns the place of the daemon that is the controller; -1 = none.
func controller(ctx context.Context, st *stage.Stage, conn *pgx.Conn) (int, error) {
	var name string
	err := conn.QueryRow(ctx, `SELECT d.name FROM dispatcherd.controller c
		JOIN dispatcherd.dispatchers d ON d.id = c.dispatcher WHERE d.lost_at IS NULL AND NOT d.leaving`).
		Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return -1, nil
	}
	for i, d := range st.Daemons {
		if d.Name == name {
			return i, err
		}
	}
	return -1, err
}
