package schedulestore

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Old ticks are deleted, except those that decide what may run.
func TestOldTicksAreDeleted(t *testing.T) {
	w := newWorld(t)
	s, gone := w.cron("s", nil), w.cron("gone", nil)
	w.exec(`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, made_at, planned_at)
		SELECT $1, n::text, 'run', now() - interval '31 days', now() - n * interval '1 minute' FROM generate_series(1, 2500) n`, s.ID)
	w.exec(
		`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, made_at)
			SELECT $1, o, 'run', now() - interval '40 days' FROM unnest('{ever,start:1,version:2,now:3}'::text[]) o`,
		s.ID,
	)
	w.exec(
		`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, made_at)
			VALUES ($1, 'q', 'queued', now() - interval '40 days'), ($1, 'new', 'run', now())`,
		s.ID,
	)
	w.exec(
		`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, made_at, planned_at)
			VALUES ($1, 'x', 'run', now() - interval '31 days', now())`,
		gone.ID,
	)
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&gone, 1)))
	require.NoError(t, w.Remove(t.Context(), "gone"))
	w.end()
	var after time.Time
	for calls, more := 0, true; more; calls++ {
		var err error
		after, more, err = w.controller.Expire(t.Context(), after)
		require.NoError(t, err)
		require.Less(t, calls, 4)
	}
	rows, err := w.db.Query(t.Context(), `SELECT occasion FROM dispatcherd.ticks WHERE schedule_id = $1 ORDER BY 1`, s.ID)
	require.NoError(t, err)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"1", "ever", "new", "q", "start:1", "version:2"}, left)
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.ticks WHERE schedule_id = $1`, gone.ID), "the new one")
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.schedule_runs`))
}

// The ticks of a worker are kept until it was not connected for 30 days.
func TestTicksOfConnectedWorkersAreKept(t *testing.T) {
	w := newWorld(t)
	s := contract.NewSchedule()
	s.Name, s.Kind, s.Type = "w", contract.StartupWorker, "x"
	_, err := w.Set(t.Context(), s)
	require.NoError(t, err)
	w.cron("other", nil)
	w.exec(`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, made_at, renewed_at)
		SELECT id, o.occasion, 'run', now() - interval '100 days', o.renewed_at FROM dispatcherd.schedules,
			(VALUES ('worker:1', NULL), ('worker:2', NULL), ('worker:3', now() - interval '29 days'),
				('worker:4', now() - interval '31 days'), ('worker:5', now() - interval '31 days')) o (occasion, renewed_at)
		WHERE name = 'w'`)
	require.NoError(t, w.RenewWorkers(t.Context(), []string{"worker:1", "worker:4", "worker:9"}))
	renewed := `SELECT count(*) FROM dispatcherd.ticks WHERE renewed_at > now() - interval '1 hour'`
	require.Equal(t, 2, w.number(renewed))
	w.exec(`UPDATE dispatcherd.ticks SET renewed_at = now() - interval '23 hours' WHERE occasion = 'worker:1'`)
	require.NoError(t, w.RenewWorkers(t.Context(), []string{"worker:1"}))
	require.Equal(t, 1, w.number(renewed), "once a day suffices")
	_, _, err = w.controller.Expire(t.Context(), time.Time{})
	require.NoError(t, err)
	rows, err := w.db.Query(t.Context(), `SELECT occasion FROM dispatcherd.ticks ORDER BY 1`)
	require.NoError(t, err)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"worker:1", "worker:3", "worker:4"}, left)
}

// An expiry reads neither the ticks that earlier ones have kept, nor all runs of schedules.
func TestAnExpiryReadsOnlyTicksThatHaveBecomeOld(t *testing.T) {
	w := newWorld(t)
	w.exec(
		`INSERT INTO dispatcherd.schedules (name, kind, spec, type) SELECT 's' || n, 'cron', '0 0 1 1 *', 'x' FROM generate_series(1, 5000) n`,
	)
	w.exec(
		`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, made_at, planned_at)
			SELECT id, 'o', 'run', now() - interval '40 days', now() - interval '40 days' FROM dispatcherd.schedules`,
	)
	w.exec(`INSERT INTO dispatcherd.jobs (type) SELECT 'x' FROM dispatcherd.schedules`)
	w.exec(
		`INSERT INTO dispatcherd.schedule_runs SELECT s.id, j.id
			FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM dispatcherd.schedules) s
		JOIN (SELECT id, row_number() OVER (ORDER BY id) AS n FROM dispatcherd.jobs) j ON j.n = s.n`,
	)
	var after time.Time
	for more := true; more; {
		var err error
		after, more, err = w.controller.Expire(t.Context(), after)
		require.NoError(t, err)
	}
	w.exec(
		`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, made_at)
			SELECT id, 'now:' || id, 'run', now() - interval '31 days' FROM dispatcherd.schedules LIMIT 50`,
	)
	w.exec(`VACUUM ANALYZE`)
	conn, err := w.db.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // without effect after Commit
	c := w.controller
	c.Do = func(ctx context.Context, f func(claim.Session) (int, error)) error {
		_, err := f(claim.Session{Context: ctx, Conn: tx.Conn()})
		return err
	}
	read := func() (n int) { // may count earlier transactions of the session
		require.NoError(t,
			tx.QueryRow(t.Context(), `SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_xact_user_tables WHERE schemaname = 'dispatcherd'`).
				Scan(&n),
		)
		return n
	}
	before := read()
	_, more, err := c.Expire(t.Context(), after)
	require.NoError(t, err)
	require.False(t, more)
	require.Less(t, read()-before, 1000)
	require.NoError(t, tx.Commit(t.Context()))
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.ticks WHERE occasion <> 'o'`))
}
