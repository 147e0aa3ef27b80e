package migrations_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// untrusted are the roles that must not stop the work of others, and a login without rights.
var untrusted = []string{"dispatcherd_producer", "dispatcherd_reader", "dispatcherd_operator", "dispatcherd_test_locks"}

// withLogin creates the last role of untrusted.
func withLogin(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	exec(t, conn, `CREATE ROLE dispatcherd_test_locks LOGIN PASSWORD 'locks'`)
	t.Cleanup(func() {
		other, err := pgx.Connect(context.Background(), conn.Config().ConnString())
		require.NoError(t, err)
		_, err = other.Exec(context.Background(), `DROP ROLE dispatcherd_test_locks`)
		require.NoError(t, err)
		require.NoError(t, other.Close(context.Background()))
	})
}

// Locks that reads and inserts take are not in the list: they conflict only with changes of the
// schema and with the drop of a partition.
func TestNoUntrustedRoleCanLockRowsOrStopWrites(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	withLogin(t, conn)
	// Operators edit schedules and limits. Ticks skip locked schedules, the controller reads limits without locks, and no heartbeat, claim
	// or finish reads either.
	rows, err := conn.Query(
		t.Context(),
		`SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'dispatcherd'::regnamespace AND relkind IN ('r', 'p')
		AND relname NOT IN ('schedules', 'limits')`,
	)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 20)
	var statements []string
	for _, table := range tables {
		for _, strength := range []string{"UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"} {
			statements = append(statements, fmt.Sprintf("SELECT FROM %s FOR %s", table, strength))
		}
		for _, mode := range []string{"SHARE UPDATE EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"} {
			statements = append(statements, fmt.Sprintf("LOCK TABLE %s IN %s MODE", table, mode))
		}
	}
	for _, role := range untrusted {
		for _, statement := range statements {
			var refused *pgconn.PgError
			require.ErrorAs(t, attempt(t, conn, role, statement), &refused, "%s must be refused: %s", role, statement)
			require.Equal(t, "42501", refused.Code, "%s must be refused: %s", role, statement)
		}
	}
	require.Zero(t, one[int](t, conn, `SELECT count(*) FROM pg_proc WHERE pronamespace = 'dispatcherd'::regnamespace AND prosrc ~ 'advisory'`),
		"every session can take every advisory lock")
}

// A session has advisory locks.
func TestAdvisoryLocksStopNeitherRetentionNorMigrations(t *testing.T) {
	dsn := pgtest.New(t)
	conn := connect(t, dsn)
	withLogin(t, conn)
	config := conn.Config()
	config.User, config.Password = "dispatcherd_test_locks", "locks"
	other, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close(context.Background())) })
	exec(t, other, `SELECT pg_advisory_lock(7233172), pg_advisory_lock(7233173, hashtext('jobs_done'))`)
	exec(t, conn, `SELECT dispatcherd.create_partition('done', current_date + 5, current_date + 6)`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = migrations.Down(ctx, dsn)
	require.NoError(t, err)
	_, err = migrations.Up(ctx, dsn)
	require.NoError(t, err)
}

// Only a role that may set created_at may also set run_at to a time before the insertion. An INSERT of
// a transaction that began earlier is no exception.
func TestBackdatedJobsCountFromTheirInsertion(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	const early = `INSERT INTO dispatcherd.jobs (type, run_at) VALUES ('pdf', '1970-01-01 00:00Z')`
	const count = `SELECT count(*) FILTER (WHERE run_at < clock_timestamp() - interval '1 minute') || ' of ' || count(*)
		FROM dispatcherd.jobs_live`
	for _, role := range []string{"dispatcherd_producer", "dispatcherd_operator"} {
		exec(t, conn, `SET ROLE `+role)
		exec(t, conn, early)
		exec(t, conn, `INSERT INTO dispatcherd.jobs (type, run_at) SELECT 'pdf', now() - n * interval '1 minute' FROM generate_series(1, 3) n`)
		_, err := conn.CopyFrom(t.Context(), pgx.Identifier{"dispatcherd", "jobs"}, []string{"type", "run_at"},
			pgx.CopyFromRows([][]any{{"pdf", time.Unix(0, 0)}, {"pdf", time.Now().Add(-time.Hour)}}))
		require.NoError(t, err)
		exec(t, conn, `RESET ROLE`)
	}
	require.Equal(t, "0 of 12", one[string](t, conn, count))
	exec(t, conn, early)
	exec(t, conn, `SET ROLE dispatcherd_dispatcher`)
	exec(t, conn, early)
	exec(t, conn, `RESET ROLE; GRANT INSERT (created_at) ON dispatcherd.jobs TO dispatcherd_producer; SET ROLE dispatcherd_producer`)
	exec(t, conn, early)
	exec(t, conn, `RESET ROLE`)
	require.Equal(t, "3 of 15", one[string](t, conn, count))
	exec(
		t,
		conn,
		`REVOKE INSERT (created_at) ON dispatcherd.jobs FROM dispatcherd_producer; TRUNCATE dispatcherd.jobs_live; SET ROLE dispatcherd_producer`,
	)
	exec(t, conn, `BEGIN; SELECT pg_sleep(1.1)`)
	exec(t, conn, `INSERT INTO dispatcherd.jobs (type) VALUES ('pdf')`)
	exec(t, conn, `INSERT INTO dispatcherd.jobs (type, run_at) VALUES ('pdf', now())`)
	exec(t, conn, `INSERT INTO dispatcherd.jobs (type, run_at) VALUES ('pdf', now() + interval '1 hour')`)
	exec(t, conn, `COMMIT; RESET ROLE`)
	require.Equal(
		t,
		"1 1 3600",
		one[string](
			t,
			conn,
			`SELECT string_agg(floor(extract(epoch FROM run_at - created_at))::text, ' ' ORDER BY id) FROM dispatcherd.jobs_live`,
		),
		"created_at is the begin of the transaction",
	)
}

// Without the right, a producer inserts through a function that limits the priority.
func TestProducerWithoutTheRightSetsNoPriority(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `REVOKE INSERT (priority) ON dispatcherd.jobs FROM dispatcherd_producer`)
	exec(
		t,
		conn,
		`CREATE FUNCTION public.enqueue(type text, priority int) RETURNS bigint LANGUAGE sql SECURITY DEFINER
			SET search_path = pg_catalog, pg_temp
		AS 'INSERT INTO dispatcherd.jobs (type, priority) VALUES (type, least(priority, 3)) RETURNING id'`,
	)
	for _, statement := range []string{
		`INSERT INTO dispatcherd.jobs (type, priority) VALUES ('pdf', 10)`, `COPY dispatcherd.jobs (type, priority) FROM STDIN`,
		`INSERT INTO dispatcherd.jobs VALUES (DEFAULT)`, `UPDATE dispatcherd.jobs SET priority = 10`,
	} {
		require.ErrorContains(t, attempt(t, conn, "dispatcherd_producer", statement), "permission denied", statement)
	}
	exec(
		t,
		conn,
		`SET ROLE dispatcherd_producer; INSERT INTO dispatcherd.jobs (type) VALUES ('pdf'); SELECT public.enqueue('pdf', 10); RESET ROLE`,
	)
	require.Equal(t, "0 3", one[string](t, conn, `SELECT string_agg(priority::text, ' ' ORDER BY id) FROM dispatcherd.jobs`))
}

// A producer must not gain age by a statement that waits before it inserts.
func TestJobsOfASlowStatementCountFromTheirInsertion(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `SET ROLE dispatcherd_producer`)
	exec(t, conn, `DO $$ BEGIN
		PERFORM pg_sleep(1.1);
		INSERT INTO dispatcherd.jobs (type) VALUES ('pdf');
		INSERT INTO dispatcherd.jobs (type, run_at) VALUES ('pdf', statement_timestamp());
	END $$`)
	exec(t, conn, `RESET ROLE`)
	require.Equal(
		t,
		"1 1",
		one[string](
			t,
			conn,
			`SELECT string_agg(floor(extract(epoch FROM run_at - created_at))::text, ' ' ORDER BY id) FROM dispatcherd.jobs_live`,
		),
	)
}
