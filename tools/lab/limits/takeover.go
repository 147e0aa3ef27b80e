package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The bounds of a takeover: on another host it is the lease, two heartbeats, and one more until the permits are read.
const (
	takeoverFar  = 13 * time.Second
	takeoverNear = 2 * time.Second
	takeoverJob  = 10 * time.Millisecond
)

// Takeover kills the controller, which has no slots, and measures until the next job of a serial key starts: with a successor on
// the same host, and without one. The lease is 10 s.
func Takeover(ctx context.Context, env *rig.Rig) (figures, details figure.Figures, err error) {
	near, err := takeover(ctx, env, "takeover-near", 5*time.Second, func(d *stage.Daemon) { d.Kill() })
	if err != nil {
		return nil, nil, err
	}
	far, err := takeover(ctx, env, "takeover", 2*takeoverFar, func(d *stage.Daemon) { d.KillFor(2 * takeoverFar) })
	return figure.Figures{figure.AtMost("takeover_s", far.Seconds(), takeoverFar.Seconds())},
		figure.Figures{figure.AtMost("takeover_same_host_s", near.Seconds(), takeoverNear.Seconds())}, err
}

// takeover returns the longest time without a start after a kill of the controller.
func takeover(ctx context.Context, env *rig.Rig, name string, lasts time.Duration, kill func(*stage.Daemon)) (_ time.Duration, err error) {
	o := stage.Timed(name, 2, 1, 10, "--lease", "10s")
	o.Idle, o.FirstLeads = 1, true
	st, err := stage.Start(ctx, env, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	n := int((lasts + 5*time.Second) / takeoverJob)
	if _, err := conn.Exec(
		ctx,
		`INSERT INTO dispatcherd.jobs (type, payload, keys) SELECT 'work', jsonb_build_object('ms', $1::int), 'serial'
			FROM generate_series(1, $2)`,
		takeoverJob.Milliseconds(),
		n,
	); err != nil {
		return 0, err
	}
	if err := rig.Pause(ctx, 2*time.Second); err != nil {
		return 0, err
	}
	var killed time.Time
	kill(st.Daemons[0])
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&killed); err != nil {
		return 0, err
	}
	if err := rig.Pause(ctx, lasts); err != nil {
		return 0, err
	}
	var seconds *float64
	err = conn.QueryRow(ctx, `SELECT extract(epoch FROM max(at - greatest(before, $1))) FROM (
		SELECT started_at AS at, lag(started_at, 1, $1) OVER (ORDER BY started_at) AS before FROM dispatcherd.jobs WHERE started_at IS NOT NULL) s
		WHERE at > $1`, killed).Scan(&seconds)
	if err != nil {
		return 0, err
	}
	if seconds == nil {
		return lasts, nil // no job has started
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}
