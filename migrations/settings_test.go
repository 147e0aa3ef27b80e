package migrations_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// strictSettings are settings of a role or database under which SQL has another meaning, or PL/pgSQL raises further errors.
var strictSettings = []string{
	"standard_conforming_strings = off", "quote_all_identifiers = on", "plpgsql.extra_errors = 'all'", "array_nulls = off",
	"transform_null_equals = on", "DateStyle = German", "IntervalStyle = sql_standard", "TimeZone = 'Pacific/Apia'", "search_path = junk",
	"bytea_output = escape", "extra_float_digits = -5", "row_security = off", "xmloption = document", "enable_indexscan = off",
	"enable_nestloop = off", "jit = on", "jit_above_cost = 0",
}

// A database with these settings gets the same schema, and its sessions can use it: what producers and operators call, and retention.
func TestSettingsOfTheDatabaseChangeNothing(t *testing.T) {
	dsn := pgtest.Empty(t)
	admin := connect(t, dsn)
	name := pgx.Identifier{admin.Config().Database}.Sanitize()
	for _, setting := range strictSettings {
		exec(t, admin, "ALTER DATABASE "+name+" SET "+setting)
	}
	_, err := migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	other, err := pgx.Connect(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	defer other.Close(t.Context())
	const checks = `SELECT coalesce(conrelid::regclass::text, contypid::regtype::text) || conname || pg_get_constraintdef(oid)
		FROM pg_constraint WHERE connamespace = 'dispatcherd'::regnamespace ORDER BY 1`
	exec(t, admin, `SET quote_all_identifiers = off; SET standard_conforming_strings = on`)
	require.Equal(t, list[string](t, other, checks), list[string](t, admin, checks))

	conn := connect(t, dsn)
	require.Equal(t, "off", one[string](t, conn, `SHOW standard_conforming_strings`))
	for _, keys := range []string{"k", "tenant:42 stripe*3 cache*all"} {
		exec(t, conn, `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', '`+keys+`')`)
	}
	for _, keys := range []string{"a*0", "a b c d e", "*", "a*b"} {
		_, err := conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', '`+keys+`')`)
		require.ErrorContains(t, err, "keys", keys)
	}
	exec(t, conn, `INSERT INTO dispatcherd.limits (key, capacity) VALUES ('tenant:*', 2)`)
	exec(t, conn, `INSERT INTO dispatcherd.schedules (name, spec, type) VALUES ('a', '* * * * *', 'pdf')`)

	exec(t, conn, `CREATE TABLE dispatcherd.jobs_done_20200101 PARTITION OF dispatcherd.jobs_done FOR VALUES
		FROM ('2020-01-01') TO ('2020-01-02')`)
	exec(t, conn, `INSERT INTO dispatcherd.jobs (type, status, finished_at) SELECT 'pdf', 'done', '2020-03-01 12:00Z'
		FROM generate_series(1, 3)`)
	exec(t, conn, `SELECT dispatcherd.create_partition('done', current_date + 4, current_date + 5),
		dispatcherd.drop_partition('done', '2020-01-01')`)
	exec(t, conn, `DELETE FROM dispatcherd.jobs_done_rest`)
	require.Zero(t, one[int](t, conn, `SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`))
	require.Equal(t, 1, one[int](t, conn,
		`SELECT dispatcherd.end_idle(ARRAY[min(id)::bigint], 'cancelled', session_user, NULL) FROM dispatcherd.jobs_live`))
	require.Equal(t, 1, one[int](t, conn, `SELECT dispatcherd.run_again(array_agg(id::bigint), '{pending}', NULL)
		FROM dispatcherd.jobs WHERE status = 'cancelled'`))
	require.Equal(t, "2", one[string](t, conn, `SELECT count(*)::text FROM dispatcherd.jobs_live`))
	requireProducersInsert(t, conn)
}

// requireProducersInsert calls the functions of producers, which execute in the sessions of producers.
func requireProducersInsert(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	id := one[int64](t, conn, `SELECT id FROM dispatcherd.insert_unique('{"type": "pdf", "run_at": "2100-01-31T08:00:00Z"}', 'u', '1 hour')`)
	require.Equal(t, "2100-01-31 08:00:00", one[string](t, conn,
		`SELECT to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') FROM dispatcherd.jobs WHERE id = $1`, id))
	require.Equal(t, id, one[int64](t, conn, `SELECT id FROM dispatcherd.insert_unique('{"type": "pdf"}', 'u', '1 hour')`))
	batch := one[int64](t, conn, `SELECT dispatcherd.open_batch('{"type": "pdf", "payload": {"a": null}}', 'ended', 'b')`)
	require.Positive(t, one[int64](t, conn, `SELECT dispatcherd.insert_member($1, '{"type": "pdf", "keys": "k"}')`, batch))
	require.Equal(t, 1, one[int](t, conn, `SELECT open FROM dispatcherd.seal_batch($1)`, batch))
	flow := fmt.Sprintf(`{"nodes": [{"name": "a", "type": "pdf", "after": [%d]}, {"name": "b", "type": "pdf", "after": ["a"]}],
		"callback": {"type": "pdf"}}`, id)
	require.Equal(t, 2, one[int](t, conn, `SELECT count(*) FROM jsonb_object_keys(dispatcherd.insert_flow($1) -> 'nodes')`, flow))
	_, err := conn.Exec(t.Context(), `SELECT dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "pdf", "priority": 99}]}')`)
	require.ErrorContains(t, err, `flow: node "a"`)
}

// A publication of all tables refuses an UPDATE or DELETE of a row that nothing identifies.
func TestEveryTableCanBeReplicated(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `CREATE PUBLICATION p FOR ALL TABLES`)
	exec(t, conn, `SELECT dispatcherd.create_partition(s, current_date + 4, current_date + 5)
		FROM unnest('{done,failed,cancelled}'::dispatcherd.status[]) s`)
	tables := list[string](t, conn, `SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'dispatcherd'::regnamespace
		AND relkind IN ('r', 'p')`)
	require.Greater(t, len(tables), 40)
	for _, table := range tables {
		assignment := one[string](t, conn, `SELECT format(CASE attidentity WHEN 'a' THEN '%1$I = DEFAULT' ELSE '%1$I = %1$I' END, attname)
			FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 ORDER BY attidentity = 'a', attnum LIMIT 1`, table)
		exec(t, conn, `UPDATE `+table+` SET `+assignment)
		exec(t, conn, `DELETE FROM `+table+` WHERE false`)
	}
}
