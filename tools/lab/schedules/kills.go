package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The kills: every killPeriod the controller is killed. It restarts at once, or, every second
// time, after restTime, so that another host takes the role over.
const (
	killPeriod = 20 * time.Second
	restTime   = 14 * time.Second
	perSecond  = 200 // schedules, each with a tick per second
	settleTime = 20 * time.Second
)

// types are the types of the jobs and of the workers.
var types = []string{"tick"}

// kill is a kill of the controller, by the clock that this process and the server share.
type kill struct {
	at   time.Time
	near bool // the process restarts at once
}

// Kills runs three daemons and kills the controller until a time has passed.
func Kills(ctx context.Context, env *rig.Rig, lasts time.Duration) (f figure.Figures, err error) {
	st, err := stage.Start(ctx, env, stage.Setup{
		Name:    "kills",
		Daemons: 3,
		Workers: 1,
		Flags:   []string{"--lease", "10s", "--max-crashes", "30000"},
		Plain:   true,
		Offers: []stage.Offer{
			{Slots: 20, Types: types},
		},
		Mix:   func(n int64) history.Work { return history.Work{N: n, Type: types[0]} },
		Types: types,
	})
	if err != nil {
		return nil, err
	}
	defer st.StopAll()
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	end := time.Now().Add(lasts).Truncate(time.Second).Add(time.Second)
	if _, err := conn.Exec(ctx, `INSERT INTO dispatcherd.schedules (name, kind, spec, type, payload, overlap, catch_up_most, ends_at)
		SELECT 'tick-' || i, 'cron', '* * * * * *', 'tick', jsonb_build_object('n', i), 'allow_all', 1000, $2
		FROM generate_series(1, $1) i`, perSecond, end); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `CREATE TABLE IF NOT EXISTS kills (at timestamptz, near boolean, role timestamptz)`); err != nil {
		return nil, err
	}
	for i := 0; ctx.Err() == nil && time.Until(end) > killPeriod; i++ {
		if err := rig.Pause(ctx, killPeriod-restTime/2); err != nil {
			return nil, err
		}
		if err := killController(ctx, st, conn, i%2 == 0); err != nil {
			return nil, err
		}
		if err := rig.Pause(ctx, restTime/2); err != nil {
			return nil, err
		}
	}
	if err := rig.Pause(ctx, time.Until(end)+settleTime); err != nil {
		return nil, err
	}
	if left, err := st.AwaitDrained(ctx, time.Minute); err != nil || left > 0 {
		return nil, fmt.Errorf("%d jobs had not ended: %w", left, err)
	}
	return killFigures(ctx, conn)
}

// killController kills the controller and waits until another process has the role.
func killController(ctx context.Context, st *stage.Stage, conn *pgx.Conn, near bool) error {
	var (
		name string
		term int64
	)
	err := conn.QueryRow(ctx, `SELECT d.name, c.term FROM dispatcherd.controller c JOIN dispatcherd.dispatchers d ON d.id = c.dispatcher`).
		Scan(&name, &term)
	if err != nil {
		return fmt.Errorf("reading which dispatcher is the controller: %w", err)
	}
	k := kill{time.Now(), near}
	for _, d := range st.Daemons {
		if d.Name == name && near {
			d.Kill()
		} else if d.Name == name {
			d.KillFor(restTime)
		}
	}
	for {
		var role time.Time
		err := conn.QueryRow(ctx, `SELECT since FROM dispatcherd.controller WHERE term > $1`, term).Scan(&role)
		if err == nil {
			_, err = conn.Exec(ctx, `INSERT INTO kills VALUES ($1, $2, $3)`, k.at, k.near, role)
			return err
		}
		if time.Since(k.at) > time.Minute {
			return fmt.Errorf("no dispatcher has become the controller within a minute: %w", err)
		}
		if err := rig.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// killsSQL computes the figures of Kills. A takeover ends when the role is taken and all ticks planned
// before are made. The lag of the ticks that a kill may delay is that of the takeover.
const killsSQL = `
WITH found AS (` + stage.TicksSQL + `), tick AS (
	SELECT t.*, t.made_at - t.planned_at AS lag FROM dispatcherd.ticks t
), takeover AS (
	SELECT k.at, k.near, greatest(k.role, (SELECT max(t.made_at) FROM tick t WHERE t.planned_at BETWEEN k.at - interval '1 second'
		AND k.role)) AS over
	FROM kills k
), usual AS (
	SELECT extract(epoch FROM t.lag) * 1000 AS ms FROM tick t
	WHERE NOT EXISTS (SELECT FROM takeover o WHERE t.planned_at BETWEEN o.at - interval '1 second' AND o.over)
)
SELECT twice, lost, wanted,
	(SELECT coalesce(max(abs(extract(epoch FROM planned_at - occasion::timestamptz))), 0) * 1000 FROM tick WHERE outcome <> 'missed'),
	coalesce((SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY ms) FROM usual), 0),
	coalesce((SELECT percentile_disc(0.99) WITHIN GROUP (ORDER BY ms) FROM usual), 0),
	(SELECT coalesce(max(extract(epoch FROM over - at)), 0) FROM takeover WHERE NOT near),
	(SELECT coalesce(max(extract(epoch FROM over - at)), 0) FROM takeover WHERE near),
	(SELECT count(*) FROM kills)
FROM found`

func killFigures(ctx context.Context, conn *pgx.Conn) (figure.Figures, error) {
	var twice, lost, wanted, drift, p50, p99, far, near, kills float64
	if err := conn.QueryRow(ctx, killsSQL, "infinity").Scan(&twice, &lost, &wanted, &drift, &p50, &p99, &far, &near, &kills); err != nil {
		return nil, err
	}
	return figure.Figures{
		figure.None("twice", twice), figure.None("lost", lost), figure.None("drift_ms", drift),
		figure.AtMost("lag_p50_ms", p50, 20), figure.AtMost("lag_p99_ms", p99, 100),
		figure.AtMost("takeover_s", far, 12), figure.AtMost("takeover_same_host_s", near, 1),
		figure.AtLeast("kills", kills, 2), figure.AtLeast("ticks", wanted, perSecond),
	}, nil
}
