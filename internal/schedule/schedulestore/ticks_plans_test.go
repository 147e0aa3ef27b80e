package schedulestore

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// A session keeps the plans that it made while the tables were empty, and Postgres then expects no rows. The statements about ticks read
// no table from end to end after it has grown, neither by a scan nor through an index.
func TestTicksUseIndexesWithPlansOfEmptyTables(t *testing.T) {
	w := newWorld(t)
	w.exec(`ALTER TABLE dispatcherd.ticks SET (autovacuum_enabled = false); ALTER TABLE dispatcherd.schedules SET (autovacuum_enabled = false);
		ALTER TABLE dispatcherd.schedule_runs SET (autovacuum_enabled = false);
		ALTER TABLE dispatcherd.jobs_live SET (autovacuum_enabled = false)`)
	w.exec(`VACUUM (ANALYZE) dispatcherd.ticks, dispatcherd.schedules, dispatcherd.schedule_runs, dispatcherd.jobs_live`)
	conn, err := pgx.Connect(t.Context(), w.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	controller := session{1, 1}
	for range 6 { // then a plan is kept
		tick := schedule.Tick{Schedule: 1, Version: 1, Occasion: "x", RunAt: time.Now()}
		_, err := controller.apply(t.Context(), conn, schedule.Requests([]schedule.Tick{tick}))
		require.NoError(t, err)
	}
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, spec, type, overlap)
		SELECT 's' || n, 'cron', '@daily', 'pdf', (ARRAY['skip', 'cancel_other', 'queue_all'])[n % 3 + 1] FROM generate_series(1, 6000) n`)
	w.exec(`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, planned_at, run_at)
		SELECT id, 'o' || n, 'skipped', now() - n * interval '1 hour', now() FROM dispatcherd.schedules, generate_series(1, 5) n`)
	w.exec(`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, run_at) SELECT id, 'q', 'queued', now() FROM dispatcherd.schedules`)
	w.exec(`WITH job AS (INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, 6000) RETURNING id)
		INSERT INTO dispatcherd.schedule_runs SELECT row_number() OVER (), id FROM job`)
	const scanned = `SELECT sum(seq_tup_read + idx_tup_fetch)::int FROM pg_stat_xact_user_tables
		WHERE relname IN ('ticks', 'schedules', 'schedule_runs', 'jobs_live')`
	for id, want := range map[int64]string{3: contract.TickSkipped, 4: contract.TickQueued, 5: contract.TickQueued} {
		for _, who := range []session{controller, {}} {
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			var before, after int // the session counts on over transactions
			require.NoError(t, tx.QueryRow(t.Context(), scanned).Scan(&before))
			tick := schedule.Tick{Schedule: id, Occasion: "new", RunAt: time.Now()}
			results, err := who.apply(t.Context(), tx, schedule.Requests([]schedule.Tick{tick}))
			require.NoError(t, err)
			require.Equal(t, want, results[id].made[0].Outcome)
			_, err = who.apply(t.Context(), tx, []schedule.Request{{Schedule: id}})
			require.NoError(t, err)
			require.NoError(t, tx.QueryRow(t.Context(), scanned).Scan(&after))
			require.Less(t, after-before, 500, "schedule %d, %+v", id, who)
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
}
