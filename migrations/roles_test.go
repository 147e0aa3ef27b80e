package migrations_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// The letters say which roles have a right: P the producer, R the reader, O the
// operator, D the dispatcher. All other roles must be refused. The owner of the
// schema (the migrator) has every right.
var rights = []struct{ who, statement string }{
	{"P OD", `INSERT INTO dispatcherd.jobs (type) VALUES ('pdf')`},
	{
		"P OD",
		`INSERT INTO dispatcherd.jobs (type, payload, priority, run_at, max_attempts, timeout_ms) VALUES ('pdf', '{}', 1, now(), 2, 5)
			RETURNING id`,
	},
	{"   D", `INSERT INTO dispatcherd.jobs (id, type) VALUES (1, 'pdf')`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, status, finished_at) VALUES ('pdf', 'done', now())`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, status, dispatcher) VALUES ('pdf', 'running', 1)`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, attempt) VALUES ('pdf', 7)`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, failures) VALUES ('pdf', 7)`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, crashes) VALUES ('pdf', 7)`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, token) VALUES ('pdf', 7)`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, created_at) VALUES ('pdf', now())`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, started_at) VALUES ('pdf', now())`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, result) VALUES ('pdf', '1')`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, errors) VALUES ('pdf', '[]')`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, progress) VALUES ('pdf', '1')`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, log) VALUES ('pdf', '""')`},
	{"   D", `INSERT INTO dispatcherd.jobs_live (type) VALUES ('pdf')`},
	{"   D", `INSERT INTO dispatcherd.jobs_done (type, status, finished_at) VALUES ('pdf', 'done', now())`},
	{"   D", `INSERT INTO dispatcherd.jobs_cancelled (type, status, finished_at) VALUES ('pdf', 'cancelled', now())`},
	{"    ", `INSERT INTO dispatcherd.jobs_done_rest (type, status) VALUES ('pdf', 'done')`},
	{"PROD", `SELECT id FROM dispatcherd.jobs`},
	{" ROD", `SELECT type, status, priority, run_at, attempt, failures, crashes, started_at, finished_at FROM dispatcherd.jobs`},
	{" ROD", `SELECT type, count(*) FROM dispatcherd.jobs_live WHERE status = 'pending' GROUP BY type`},
	{"  OD", `SELECT * FROM dispatcherd.job_list`},
	{"  OD", `SELECT payload FROM dispatcherd.jobs`},
	{"  OD", `SELECT result FROM dispatcherd.jobs`},
	{"  OD", `SELECT errors FROM dispatcherd.jobs`},
	{"  OD", `SELECT progress FROM dispatcherd.jobs`},
	{"  OD", `SELECT log FROM dispatcherd.jobs`},
	{"  OD", `SELECT log FROM dispatcherd.jobs_live`},
	{"  OD", `SELECT token FROM dispatcherd.jobs`},
	{"  OD", `SELECT payload FROM dispatcherd.jobs_live`},
	{"   D", `SELECT payload FROM dispatcherd.jobs_done`},
	{"   D", `SELECT payload FROM dispatcherd.jobs_done_rest`},
	{"   D", `UPDATE dispatcherd.jobs SET status = 'pending'`},
	{"   D", `UPDATE dispatcherd.jobs SET priority = 10`},
	{"   D", `UPDATE dispatcherd.jobs SET attempt = 0`},
	{"   D", `UPDATE dispatcherd.jobs SET dispatcher = NULL`},
	{"   D", `UPDATE dispatcherd.jobs SET payload = '{}'`},
	{"   D", `UPDATE dispatcherd.jobs SET progress = NULL`},
	{"   D", `UPDATE dispatcherd.jobs_live SET attempt = attempt + 1`},
	{"   D", `SELECT id FROM dispatcherd.jobs_live FOR UPDATE`},
	{"   D", `SELECT id FROM dispatcherd.jobs FOR KEY SHARE`},
	{"   D", `LOCK TABLE dispatcherd.jobs_live IN ROW EXCLUSIVE MODE`},
	{"   D", `DELETE FROM dispatcherd.jobs`},
	{"   D", `DELETE FROM dispatcherd.jobs_live WHERE status = 'running'`},
	{"   D", `DELETE FROM dispatcherd.jobs_cancelled`},
	{"   D", `SELECT dispatcherd.end_idle(ARRAY[1], 'cancelled', session_user, NULL)`},
	{"   D", `SELECT dispatcherd.run_again('{1, 2}', '{pending, pending}', NULL)`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', 'k') ON CONFLICT DO NOTHING`},
	{"P OD", `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', current_user || ' / k') ON CONFLICT DO NOTHING`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, watched) VALUES ('pdf', true)`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, status) VALUES ('pdf', 'waiting')`},
	{"   D", `INSERT INTO dispatcherd.jobs_waiting (type, status) VALUES ('pdf', 'waiting')`},
	{" ROD", `SELECT parent, unique_key, watched FROM dispatcherd.jobs`},
	{"P OD", `SELECT dispatcherd.open_batch('{"type": "pdf"}')`},
	{"P OD", `DO $$ DECLARE b bigint := dispatcherd.open_batch(); BEGIN
		INSERT INTO dispatcherd.jobs (type, parent) VALUES ('pdf', b); PERFORM dispatcherd.insert_member(b, '{"type": "pdf"}');
			PERFORM dispatcherd.seal_batch(b); END $$`},
	{"P OD", `SELECT dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "pdf"}]}')`},
	{"P OD", `SELECT * FROM dispatcherd.insert_unique('{"type": "pdf"}', 'k', '1 hour')`},
	{" ROD", `SELECT FROM dispatcherd.batches, dispatcherd.nodes, dispatcherd.edges, dispatcherd.uniques`},
	{"   D", `UPDATE dispatcherd.batches SET sealed_at = now()`},
	{"   D", `DELETE FROM dispatcherd.nodes`},
	{"   D", `SELECT * FROM dispatcherd.ends`},
	{"   D", `INSERT INTO dispatcherd.ends (target) VALUES (1)`},
	{"   D", `DELETE FROM dispatcherd.ends`},
	{"   D", `SELECT * FROM dispatcherd.bad_members`},
	{"    ", `INSERT INTO dispatcherd.uniques VALUES ('k', 1, now())`},
	{"    ", `TRUNCATE dispatcherd.jobs`},
	{"    ", `TRUNCATE dispatcherd.jobs_live`},
	{"  OD", `INSERT INTO dispatcherd.operations (kind, target) VALUES ('cancel', 1)`},
	{"  OD", `INSERT INTO dispatcherd.operations (kind, target, reason) VALUES ('retry_tree', 1, 'repaired'), ('repair', NULL, NULL)`},
	{"   D", `INSERT INTO dispatcherd.operations (kind, target, who) VALUES ('cancel', 1, 'another')`},
	{"  OD", `SELECT FROM dispatcherd.operations`},
	{"   D", `SELECT FROM dispatcherd.operations FOR UPDATE`},
	{"   D", `DELETE FROM dispatcherd.operations`},
	{" ROD", `SELECT * FROM dispatcherd.dispatchers`},
	{"   D", `UPDATE dispatcherd.dispatchers SET armed = true`},
	{"   D", `UPDATE dispatcherd.dispatchers SET lost_at = now()`},
	{"   D", `INSERT INTO dispatcherd.dispatchers (name, lease) VALUES ('x', '1s')`},
	{"   D", `DELETE FROM dispatcherd.dispatchers`},
	{"   D", `SELECT * FROM dispatcherd.claims`},
	{"   D", `DELETE FROM dispatcherd.claims`},
	{"   D", `SELECT * FROM dispatcherd.request_keys`},
	{"   D", `INSERT INTO dispatcherd.request_keys VALUES ('k', 'r', 1, now())`},
	{"   D", `UPDATE dispatcherd.request_keys SET job = 1`},
	{"   D", `DELETE FROM dispatcherd.request_keys`},
	{"   D", `SELECT * FROM dispatcherd.reports`},
	{"   D", `INSERT INTO dispatcherd.reports (job, attempt, name, data) VALUES (1, 1, 'partial', '1')`},
	{"    ", `UPDATE dispatcherd.reports SET data = '2'`},
	{"   D", `DELETE FROM dispatcherd.reports`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, deadline) VALUES ('pdf', now())`},
	{"P OD", `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', 'tenant:42 stripe*3 cache*all')`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, fence) VALUES ('pdf', 7)`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, keys, fence) VALUES ('pdf', 'k', 7)`},
	{"   D", `INSERT INTO dispatcherd.jobs (type, admitted_to) VALUES ('pdf', 7)`},
	{" ROD", `SELECT keys, fence, admitted_to, admitted_at FROM dispatcherd.jobs`},
	{"   D", `UPDATE dispatcherd.jobs_live SET fence = 7`},
	{" ROD", `SELECT * FROM dispatcherd.limits`},
	{"  OD", `INSERT INTO dispatcherd.limits (key, capacity) VALUES ('k', 2)`},
	{"  OD", `UPDATE dispatcherd.limits SET capacity = 0`},
	{"  OD", `DELETE FROM dispatcherd.limits`},
	{"    ", `TRUNCATE dispatcherd.limits`},
	{"   D", `SELECT * FROM dispatcherd.key_starts`},
	{"   D", `DELETE FROM dispatcherd.key_starts`},
	{"   D", `UPDATE dispatcherd.controller SET admissions = admissions + 1`},
	{"  OD", `INSERT INTO dispatcherd.schedules (name, kind, spec, type, keys) VALUES ('a', 'cron', '* * * * *', 'pdf', 'k')`},
	{" ROD", `SELECT keys FROM dispatcherd.schedules`},
	{"  OD", `INSERT INTO dispatcherd.schedules (name, kind, spec, type) VALUES ('a', 'cron', '* * * * *', 'pdf')`},
	{"  OD", `UPDATE dispatcherd.schedules SET paused = true`},
	{"  OD", `DELETE FROM dispatcherd.schedules`},
	{"  OD", `SELECT payload FROM dispatcherd.schedules`},
	{" ROD", `SELECT name, kind, spec, error FROM dispatcherd.schedules`},
	{"   D", `UPDATE dispatcherd.schedules SET error = 'x'`},
	{"    ", `UPDATE dispatcherd.schedules SET version = 7`},
	{"    ", `UPDATE dispatcherd.schedules SET since = now()`},
	{"    ", `TRUNCATE dispatcherd.schedules`},
	{" ROD", `SELECT * FROM dispatcherd.ticks`},
	{" ROD", `SELECT * FROM dispatcherd.schedule_runs`},
	{"   D", `INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome) VALUES (1, 'x', 'run')`},
	{"   D", `DELETE FROM dispatcherd.ticks`},
	{" ROD", `SELECT * FROM dispatcherd.controller`},
	{"   D", `UPDATE dispatcherd.controller SET term = term + 1`},
	{"   D", `INSERT INTO dispatcherd.controller (term) VALUES (7) ON CONFLICT DO NOTHING`},
	{"    ", `DELETE FROM dispatcherd.controller`},
	{"   D", `INSERT INTO dispatcherd.schedule_runs VALUES (1, 1)`},
	{" ROD", `SELECT * FROM dispatcherd.schema_version`},
	{"    ", `UPDATE dispatcherd.schema_version SET is_applied = false`},
	{"    ", `DELETE FROM dispatcherd.schema_version`},
	{"   D", `SELECT dispatcherd.create_partition('done', '2020-01-01', '2020-01-02'), dispatcherd.drop_partition('done', '2020-01-01')`},
	{"   D", `DELETE FROM dispatcherd.jobs_done_rest`},
	{"  OD", `SELECT dispatcherd.may_notify()`},
	{"P OD", `SELECT nextval('dispatcherd.job_ids')`},
	{"    ", `SELECT setval('dispatcherd.job_ids', 1)`},
	{"    ", `CREATE TABLE dispatcherd.mine ()`},
	{"    ", `CREATE FUNCTION dispatcherd.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'`},
	{"    ", `CREATE OR REPLACE FUNCTION dispatcherd.notify_dispatchers() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`},
	{"    ", `ALTER TABLE dispatcherd.jobs ADD x int`},
	{"    ", `ALTER TABLE dispatcherd.jobs DISABLE TRIGGER notify_dispatchers`},
	{"    ", `CREATE TRIGGER mine AFTER INSERT ON dispatcherd.jobs FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.notify_dispatchers()`},
	{"    ", `DROP TABLE dispatcherd.operations`},
	{"    ", `DROP SCHEMA dispatcherd CASCADE`},
	{"    ", `CREATE ROLE mine`},
}

// attempt executes a statement as a role and rolls it back.
func attempt(t testing.TB, conn *pgx.Conn, role, statement string) error {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL ROLE "+role)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), statement)
	return err
}

func TestEachRoleMayDoItsWorkAndNothingElse(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `CREATE ROLE dispatcherd_test_no_rights`)
	t.Cleanup(func() {
		other, err := pgx.Connect(context.Background(), conn.Config().ConnString())
		require.NoError(t, err)
		_, err = other.Exec(context.Background(), `DROP ROLE dispatcherd_test_no_rights`)
		require.NoError(t, errors.Join(err, other.Close(context.Background())))
	})
	roles := map[byte]string{
		'P': "dispatcherd_producer",
		'R': "dispatcherd_reader",
		'O': "dispatcherd_operator",
		'D': "dispatcherd_dispatcher",
		'-': "dispatcherd_test_no_rights",
	}
	for letter, role := range roles {
		for _, r := range rights {
			err := attempt(t, conn, role, r.statement)
			if strings.IndexByte(r.who, letter) >= 0 {
				require.NoError(t, err, "%s must be allowed: %s", role, r.statement)
				continue
			}
			var refused *pgconn.PgError
			require.True(t, errors.As(err, &refused) && refused.Code == "42501", "%s must be refused: %s, and got %v", role, r.statement, err)
		}
	}
	exec(t, conn, `SET ROLE dispatcherd_producer`)
	_, err := conn.CopyFrom(
		t.Context(),
		pgx.Identifier{"dispatcherd", "jobs"},
		[]string{"type", "payload"},
		pgx.CopyFromRows([][]any{{"pdf", "{}"}}),
	)
	require.NoError(t, err)
	_, err = conn.CopyFrom(t.Context(), pgx.Identifier{"dispatcherd", "jobs"}, []string{"id", "type"}, pgx.CopyFromRows([][]any{{1, "pdf"}}))
	require.ErrorContains(t, err, "permission denied")
}

func TestColumnRightsOfProducersAndReaders(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	rows, err := conn.Query(t.Context(), `SELECT attname::text FROM pg_attribute WHERE attrelid = 'dispatcherd.jobs'::regclass AND attnum > 0
		AND has_column_privilege('dispatcherd_producer', attrelid, attname, 'INSERT') ORDER BY attname`)
	require.NoError(t, err)
	writable, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(
		t,
		[]string{"backoff", "expected_ms", "keys", "max_attempts", "parent", "payload", "priority", "run_at", "timeout_ms", "traceparent", "type",
			"unique_key"},
		writable,
	)
	rows, err = conn.Query(t.Context(), `SELECT attname::text FROM pg_attribute WHERE attrelid = 'dispatcherd.jobs'::regclass AND attnum > 0
		AND NOT has_column_privilege('dispatcherd_reader', attrelid, attname, 'SELECT') ORDER BY attname`)
	require.NoError(t, err)
	hidden, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"deadline", "errors", "log", "payload", "progress", "result", "token"}, hidden)
}

// A function that runs with the rights of its owner must not resolve names by the
// search path of its caller.
func TestSecurityDefinerFunctionsSetTheirSearchPath(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	rows, err := conn.Query(t.Context(), `SELECT proname::text, coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)
		FROM pg_proc WHERE pronamespace = 'dispatcherd'::regnamespace AND prosecdef ORDER BY 1`)
	require.NoError(t, err)
	var names []string
	var name string
	var fixed bool
	_, err = pgx.ForEachRow(rows, []any{&name, &fixed}, func() error {
		require.True(t, fixed, name)
		names = append(names, name)
		return nil
	})
	require.NoError(t, err)
	require.Equal(
		t,
		[]string{
			"create_partition",
			"drop_partition",
			"insert_flow",
			"insert_member",
			"insert_unique",
			"notify_dispatchers",
			"open_batch",
			"owns_batch",
			"raise_early_run_at",
			"record_edits",
			"record_limit_edits",
			"seal_batch",
		},
		names,
	)
}

// The statistics of the planner contain values of columns.
func TestStatisticsShowProducersNothingButIds(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `INSERT INTO dispatcherd.jobs (type, payload, unique_key) SELECT 'secret', '{"secret": 1}', 'k' || n
		FROM generate_series(1, 100) n; ANALYZE dispatcherd.jobs; SET ROLE dispatcherd_producer`)
	require.Empty(t, list[string](t, conn, `SELECT attname::text FROM pg_stats WHERE schemaname = 'dispatcherd' AND attname <> 'id'`))
}

// Some databases revoke the default rights of PUBLIC. So each right is granted to
// the roles that need it.
func TestRolesNeedNoRightsOfPublic(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA dispatcherd FROM PUBLIC`)
	exec(t, conn, `REVOKE USAGE ON SCHEMA dispatcherd FROM PUBLIC`)
	for role, statements := range map[string][]string{
		"dispatcherd_producer": {`SELECT dispatcherd.compatible_from()`, `INSERT INTO dispatcherd.jobs (type, expected_ms) VALUES ('pdf', 1)`},
		"dispatcherd_reader":   {`SELECT dispatcherd.compatible_from()`, `SELECT dispatcherd.duration_class(1)`},
		"dispatcherd_operator": {`SELECT dispatcherd.compatible_from()`, `SELECT dispatcherd.may_notify()`,
			`INSERT INTO dispatcherd.operations (kind, target) VALUES ('cancel', 1)`},
		"dispatcherd_dispatcher": {`SELECT dispatcherd.compatible_from()`, `SELECT dispatcherd.end_idle('{1}', 'cancelled', session_user, NULL)`,
			`SELECT dispatcherd.run_again('{1}', '{pending}', NULL)`, `SELECT dispatcherd.create_partition('done', '2020-01-01', '2020-01-02')`},
	} {
		for _, statement := range statements {
			require.NoError(t, attempt(t, conn, role, statement), "%s: %s", role, statement)
		}
	}
	require.Empty(t, one[*string](t, conn, `SELECT string_agg(proname, ', ') FROM pg_proc p WHERE pronamespace = 'dispatcherd'::regnamespace
		AND prorettype <> 'trigger'::regtype AND NOT has_function_privilege('dispatcherd_dispatcher', oid, 'EXECUTE')`),
		"the function of a trigger needs no execute right")
}

const rightsOfRoles = `WITH acl (object, col, entry) AS (
		SELECT nspname::text, '', a FROM pg_namespace, aclexplode(nspacl) a WHERE nspname = 'dispatcherd'
		UNION ALL SELECT c.oid::regclass::text, '', a FROM pg_class c, aclexplode(relacl) a WHERE relnamespace = 'dispatcherd'::regnamespace
		UNION ALL SELECT attrelid::regclass::text, attname, a FROM pg_class c JOIN pg_attribute ON attrelid = c.oid, aclexplode(attacl) a
			WHERE relnamespace = 'dispatcherd'::regnamespace
		UNION ALL SELECT oid::regprocedure::text, '', a FROM pg_proc, aclexplode(proacl) a WHERE pronamespace = 'dispatcherd'::regnamespace)
	SELECT string_agg(format('%s: %s %s %s', (entry).grantee::regrole, (entry).privilege_type, object, col), E'\n'
		ORDER BY (entry).grantee::regrole::text, object, col, (entry).privilege_type)
	FROM acl WHERE (entry).grantee::regrole::text LIKE 'dispatcherd\_%'`

// Roles that are created after the migrations get the same rights from the next Up. A right that an
// administrator has revoked stays revoked.
func TestLateRolesGetTheRightsOfTheMigrations(t *testing.T) {
	dsn := pgtest.New(t)
	conn := connect(t, dsn)
	want := one[string](t, conn, rightsOfRoles)
	for _, role := range []string{"dispatcherd_producer", "dispatcherd_reader", "dispatcherd_operator", "dispatcherd_dispatcher"} {
		exec(t, conn, "DROP OWNED BY "+role) // of this database only
	}
	require.Nil(t, one[*string](t, conn, rightsOfRoles))
	_, err := migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	require.Equal(t, want, one[string](t, conn, rightsOfRoles))

	exec(t, conn, "REVOKE INSERT (priority) ON dispatcherd.jobs FROM dispatcherd_producer")
	_, err = migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	require.Error(t, attempt(t, conn, "dispatcherd_producer", "INSERT INTO dispatcherd.jobs (type, priority) VALUES ('pdf', 1)"))
}
