package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// A session keeps the plans that it made while a table was empty, and Postgres then expects no rows. Without the planner settings of the
// functions these plans read the complete table after it has grown.
func TestFunctionsUseIndexesWithPlansOfEmptyTables(t *testing.T) {
	dsn := pgtest.New(t)
	conn, other := connect(t, dsn), connect(t, dsn)
	exec(t, conn, `INSERT INTO dispatcherd.dispatchers (name, lease, armed) VALUES ('a', '1 hour', true)`)
	exec(t, conn, `ALTER TABLE dispatcherd.jobs_live SET (autovacuum_enabled = false); ALTER TABLE dispatcherd.jobs_cancelled_rest
		SET (autovacuum_enabled = false)`)
	calls := []struct{ name, sql string }{
		{"notify_dispatchers", `INSERT INTO dispatcherd.jobs (type) VALUES ('pdf')`},
		{"raise_early_run_at", `SET LOCAL ROLE dispatcherd_producer; INSERT INTO dispatcherd.jobs (type, run_at)
			VALUES ('pdf', now() - interval '1 day')`},
		{"end_idle", `SELECT dispatcherd.end_idle(ARRAY[7], 'cancelled', session_user, NULL)`},
		{"run_again", `SELECT dispatcherd.run_again('{8}', '{pending}', NULL)`},
	}
	const scanned = `SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_xact_user_tables WHERE relname ~ '^jobs_(live|cancelled)'`
	read := func(sql string) int64 { // how many rows a call reads without an index
		exec(t, conn, `BEGIN`)
		before := one[int64](t, conn, scanned)
		exec(t, conn, sql)
		exec(t, conn, `RESET ROLE`)
		after := one[int64](t, conn, scanned)
		exec(t, conn, `ROLLBACK`)
		return after - before
	}
	exec(t, other, `VACUUM (ANALYZE) dispatcherd.jobs_live`)
	exec(t, other, `VACUUM (ANALYZE) dispatcherd.jobs_cancelled_rest`)
	for range 6 { // then a plan is kept
		for _, c := range calls {
			read(c.sql)
		}
	}
	exec(t, other, `INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, 20000)`)
	exec(t, other, `INSERT INTO dispatcherd.jobs (type, status, finished_at) SELECT 'pdf', 'cancelled', now() - interval '10 days'
		FROM generate_series(1, 20000)`)
	for _, c := range calls {
		require.Less(t, read(c.sql), int64(100), c.name)
	}
}
