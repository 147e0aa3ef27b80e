package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// Plain jobs arrive at a steady rate, in groups, and are done at once. The schedules are due every two minutes.
const (
	plainGroup  = 25
	plainPause  = 50 * time.Millisecond
	burstPeriod = 2 * time.Minute
	burstMost   = 55 * time.Second // longest burst, so that the same time before it is quiet
)

var errBurst = errors.New("the ticks of a burst were not made in time, so no quiet time is left to compare with")

// BurstPlain compares the rate at which plain jobs end while n schedules are due in one second with their
// rate in the same time before, in several rounds.
func BurstPlain(ctx context.Context, env *rig.Rig, n, rounds int) (figure.Figures, error) {
	st, err := stage.Start(ctx, env, stage.Setup{
		Name:    "plain",
		Daemons: 1,
		Workers: 1,
		Plain:   true,
		Types:   []string{"plain"},
		Offers:  []stage.Offer{{Slots: 20, Types: []string{"plain"}}},
		Mix:     func(n int64) history.Work { return history.Work{N: n, Type: "plain"} },
	})
	if err != nil {
		return nil, err
	}
	defer st.StopAll()
	first := time.Now().Add(loadTime + burstPeriod).Truncate(burstPeriod).UTC()
	if err := st.Exec(ctx, fmt.Sprintf(`INSERT INTO dispatcherd.schedules (name, kind, spec, type, overlap, starts_at, ends_at)
		SELECT 'plain-' || i, 'cron', '0 */2 * * * *', 'tick', 'allow_all', '%s', '%s' FROM generate_series(1, %d) i`,
		first.Format(time.RFC3339), first.Add(time.Duration(rounds)*burstPeriod).Format(time.RFC3339), n)); err != nil {
		return nil, err
	}
	if err := st.Daemons[0].Restart(ctx); err != nil {
		return nil, err
	}
	if _, _, err := observe(ctx, st, n, 0); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := insertPlain(ctx, conn, first.Add(time.Duration(rounds-1)*burstPeriod+burstMost+time.Second)); err != nil {
		return nil, err
	}
	var burst, quiet int
	for round := range rounds {
		b, q, err := endsBeside(ctx, conn, first.Add(time.Duration(round)*burstPeriod), n)
		if err != nil {
			return nil, err
		}
		burst, quiet = burst+b, quiet+q
	}
	return figure.Figures{figure.AtLeast("burst_plain", float64(burst)/float64(quiet), 0.9)}, nil
}

// insertPlain inserts plain jobs at their rate until an instant.
func insertPlain(ctx context.Context, conn *pgx.Conn, until time.Time) error {
	begun := time.Now()
	for i := 0; time.Now().Before(until); i++ {
		if _, err := conn.Exec(
			ctx,
			`INSERT INTO dispatcherd.jobs (type, payload) SELECT 'plain', jsonb_build_object('n', $1::int * $2::int + k)
				FROM generate_series(1, $2) k`,
			i,
			plainGroup,
		); err != nil {
			return err
		}
		if err := rig.Pause(ctx, time.Until(begun.Add(time.Duration(i+1)*plainPause))); err != nil {
			return err
		}
	}
	return nil
}

// endsBeside counts the plain jobs that ended during the burst of n ticks at an instant, and in the same time before.
func endsBeside(ctx context.Context, conn *pgx.Conn, at time.Time, n int) (burst, quiet int, err error) {
	var ticks int
	var last *time.Time
	if err := conn.QueryRow(ctx, `SELECT count(*), max(made_at) FROM dispatcherd.ticks WHERE planned_at = $1`, at).
		Scan(&ticks, &last); err != nil {
		return 0, 0, err
	}
	if ticks != n || last.Sub(at) > burstMost {
		return 0, 0, fmt.Errorf("%w: %d of %d ticks, the last one at %v", errBurst, ticks, n, last)
	}
	err = conn.QueryRow(ctx, `SELECT count(*) FILTER (WHERE finished_at >= $1), count(*) FILTER (WHERE finished_at < $1) FROM dispatcherd.jobs
		WHERE type = 'plain' AND status = 'done' AND finished_at >= $1::timestamptz - ($2::timestamptz - $1)
			AND finished_at < $2`, at, *last).Scan(&burst, &quiet)
	return burst, quiet, err
}
