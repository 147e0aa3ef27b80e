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

// The rate of starts, its window, and the kills.
const (
	perWindow = 10
	window    = time.Second
	rateKills = 5
)

// Rate measures the starts of a key with 10 per second over three daemons, five of which are killed: every second time
// the controller. The details say how many attempts never started.
func Rate(ctx context.Context, env *rig.Rig, lasts time.Duration) (f, details figure.Figures, err error) {
	st, err := stage.Start(ctx, env, stage.Timed("rate", 3, 1, 20, "--lease", "10s", "--max-crashes", "30000"))
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(
		ctx,
		`INSERT INTO dispatcherd.limits (key, capacity, rate, per) VALUES ('api', NULL, $1, $2)`,
		perWindow,
		window,
	); err != nil {
		return nil, nil, err
	}
	if _, err := conn.Exec(
		ctx,
		`INSERT INTO dispatcherd.jobs (type, payload, keys) SELECT 'work', '{}', 'api' FROM generate_series(1, $1)`,
		int(perWindow*lasts.Seconds()),
	); err != nil {
		return nil, nil, err
	}
	for i := range rateKills {
		if err := rig.Pause(ctx, lasts/(rateKills+1)); err != nil {
			return nil, nil, err
		}
		at, err := st.Controller(ctx)
		if err != nil {
			return nil, nil, err
		}
		st.Daemons[(max(at, 0)+i%2)%len(st.Daemons)].Kill()
	}
	if left, err := st.AwaitDrained(ctx, lasts); err != nil {
		return nil, nil, err
	} else if left > 0 {
		return nil, nil, rig.ErrStuck
	}
	jobs, err := read(ctx, st.URL())
	if err != nil {
		return nil, nil, err
	}
	// A kill may cost a takeover, which is more of a short time.
	least := 9.8
	if lasts < 10*time.Minute {
		least = perWindow * (1 - rateKills*2/lasts.Seconds())
	}
	starts := startsOf(jobs)
	return figure.Figures{figure.AtMost("rate_max", float64(densest(starts)), perWindow), figure.AtLeast("rate_mean", mean(starts), least)},
		figure.Figures{figure.AtLeast("rate_unstarted", float64(unstarted(jobs)), 0)}, nil
}
