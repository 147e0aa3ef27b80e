package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
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

// manyTypes is how many other types the slots support.
const manyTypes = 2000

// Handoff measures the time from the end of a job of a serial key to the start of the next one: on the controller, there with many types,
// on another dispatcher, and there without notifications.
func Handoff(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	local, err := handoff(ctx, env, stage.Timed("handoff", 1, 1, 10), n)
	if err != nil {
		return nil, nil, err
	}
	many := stage.Timed("types", 1, 1, 10)
	for i := range manyTypes {
		many.Types = append(many.Types, fmt.Sprint("other", i))
	}
	many.Offers[0].Types = many.Types
	typed, err := handoff(ctx, env, many, n/5)
	if err != nil {
		return nil, nil, err
	}
	far := stage.Timed("remote", 2, 1, 10)
	far.Idle, far.FirstLeads = 1, true
	remote, err := handoff(ctx, env, far, n/5)
	if err != nil {
		return nil, nil, err
	}
	far = stage.Timed("polled", 2, 1, 10, "--listen=false")
	far.Idle, far.FirstLeads = 1, true
	polled, err := handoff(ctx, env, far, 30)
	return figure.Figures{
		figure.AtMost(
			"handoff_p50_ms",
			local.p50,
			3,
		),
		figure.AtMost("handoff_p99_ms", local.p99, 15),
		figure.AtLeast("serial_per_s", local.rate, 250),
		figure.AtLeast("serial_per_s_2000_types", typed.rate, 400),
		figure.AtMost("remote_handoff_p99_ms", remote.p99, 50),
	}, figure.Figures{figure.AtMost("remote_handoff_p50_ms", remote.p50, 50), figure.AtMost("polled_handoff_max_ms", polled.most, 2200)}, err
}

func handoff(ctx context.Context, env *rig.Rig, o stage.Setup, n int) (g gaps, err error) {
	st, err := stage.Start(ctx, env, o)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return g, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := (stage.Jobs{N: n, Column: "keys", Value: `'serial'`}).Drain(ctx, st); err != nil {
		return g, err
	}
	return g, conn.QueryRow(ctx, handoffSQL).Scan(&g.p50, &g.p99, &g.most, &g.rate)
}
