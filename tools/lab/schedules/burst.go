package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// burstWait is the time from the insertion of the schedules of a burst to its instant.
const burstWait = 8 * time.Second

// Burst measures from an instant at which many schedules are due until all their jobs can be read.
func Burst(ctx context.Context, env *rig.Rig, n int) (figure.Figures, error) {
	st, err := stage.Start(ctx, env, stage.Setup{Name: "burst", Daemons: 1, Plain: true})
	if err != nil {
		return nil, err
	}
	defer st.StopAll()
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	at := time.Now().Add(burstWait).Truncate(time.Second).UTC()
	if _, err := conn.Exec(
		ctx,
		`INSERT INTO dispatcherd.schedules (name, kind, spec, type) SELECT 'burst-' || i, 'cron', $2, 'tick' FROM generate_series(1, $1) i`,
		n,
		at.Format("5 4 15 2 1 *"),
	); err != nil {
		return nil, err
	}
	if err := rig.Pause(ctx, time.Until(at)); err != nil {
		return nil, err
	}
	var took time.Duration
	for jobs := 0; jobs < n && took < time.Minute; {
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.jobs_live`).Scan(&jobs); err != nil {
			return nil, err
		}
		took = time.Since(at)
		if err := rig.Pause(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return figure.Figures{figure.AtMost("burst10k_s", took.Seconds(), 2)}, nil
}
