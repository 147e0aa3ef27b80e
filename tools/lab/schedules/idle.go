package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// loadTime bounds the time from the start of a daemon to the end of the load of its schedules.
const loadTime = time.Minute

// Idle measures the memory and the statements that schedules without ticks cost a daemon. The
// statements are those of the controller; heartbeats are others.
func Idle(ctx context.Context, env *rig.Rig, n int, lasts time.Duration) (figure.Figures, error) {
	st, err := stage.Start(ctx, env, stage.Setup{Name: "idle", Daemons: 1, Plain: true})
	if err != nil {
		return nil, err
	}
	defer st.StopAll()
	empty, _, err := observe(ctx, st, 0, lasts)
	if err != nil {
		return nil, err
	}
	// 1,440 times a day in 40 time zones, on a day that is not near.
	day := time.Now().AddDate(0, 6, 0).Format("2 1")
	if err := st.Exec(ctx, fmt.Sprintf(`INSERT INTO dispatcherd.schedules (name, kind, spec, time_zone, type)
		SELECT 'idle-' || i, 'cron', i %% 60 || ' ' || i / 60 %% 24 || ' %s *', z.names[1 + i %% 40], 'tick' FROM generate_series(1, %d) i,
			(SELECT array_agg(name ORDER BY md5(name)) AS names FROM pg_timezone_names
				WHERE name ~ '^(America|Europe|Asia)/') z`, day, n)); err != nil {
		return nil, err
	}
	if err := st.Daemons[0].Restart(ctx); err != nil {
		return nil, err
	}
	full, statements, err := observe(ctx, st, n, lasts)
	if err != nil {
		return nil, err
	}
	perMinute := float64(statements) / lasts.Minutes()
	return figure.Figures{
		figure.AtMost("idle_statements_per_min", perMinute, 6), figure.AtLeast("reads_saved", 1-perMinute/60, 0.99),
		figure.AtMost("mem_mib_100k", full-empty, 64),
	}, nil
}

var errLoad = errors.New("the schedules were not loaded within a minute")

// observe waits until the daemon has loaded n schedules, and counts statements for a while. It
// returns the resident memory afterwards.
func observe(ctx context.Context, st *stage.Stage, n int, lasts time.Duration) (mib float64, statements int, err error) {
	d := st.Daemons[0]
	for begun := time.Now(); ; {
		m, err := d.Metrics(ctx)
		if err == nil && m.Schedules("active") == float64(n) {
			break
		}
		if time.Since(begun) > loadTime {
			return 0, 0, fmt.Errorf("%w: %v of %d: %w", errLoad, m.Schedules("active"), n, err)
		}
		if err := rig.Pause(ctx, 100*time.Millisecond); err != nil {
			return 0, 0, err
		}
	}
	if err := rig.Pause(ctx, 2*time.Second); err != nil { // the rest of the start
		return 0, 0, err
	}
	before, err := d.Metrics(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := rig.Pause(ctx, lasts); err != nil {
		return 0, 0, err
	}
	after, err := d.Metrics(ctx)
	if err != nil {
		return 0, 0, err
	}
	now, _ := rig.Memory(d.PID())
	return float64(now) / (1 << 20), int(after.Sent("plan") - before.Sent("plan")), err
}
