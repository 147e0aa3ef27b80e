package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
)

const (
	beforeKeys    = 29 // the schema of daemons that know no keys
	keysIndexed   = 31 // daemons that know keys can use the schema, and former ones, too
	lanesOfPermit = `SELECT indexdef FROM pg_indexes WHERE indexname = 'jobs_live_lanes'`
)

// Attack 23: a daemon of a former version runs beside the new schema. The last step refuses, so that producers cannot insert keys, and
// daemons of both versions can use the schema.
func TestLastStepWaitsForDaemonsOfFormerVersions(t *testing.T) {
	dsn := pgtest.New(t)
	conn := connect(t, dsn)
	_, err := migrations.Down(t.Context(), dsn, beforeKeys)
	require.NoError(t, err)
	exec(
		t,
		conn,
		`INSERT INTO dispatcherd.dispatchers (name, lease, incarnation) VALUES ('old "one"', '1 s', gen_random_uuid()), ('left', '1 s', NULL)`,
	)
	for range 2 {
		_, err = migrations.Up(t.Context(), dsn)
		var postponed *migrations.PostponedError
		require.ErrorAs(t, err, &postponed)
		require.ErrorContains(t, err, `'old "one"'`)
		require.NotContains(t, err.Error(), "left")
		require.ErrorContains(t, err, "run 'dispatcherd migrate up' again")
		require.Equal(t, keysIndexed, one[int](t, conn, `SELECT max(version_id) FROM dispatcherd.schema_version WHERE is_applied`))
		require.Equal(t, 6, one[int](t, conn, `SELECT dispatcherd.compatible_from()`), "daemons of former versions can use it")
	}
	require.Error(t, attempt(t, conn, "dispatcherd_producer", `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', 'k')`))
	require.NotContains(t, one[string](t, conn, lanesOfPermit), "WHERE")

	exec(t, conn, `UPDATE dispatcherd.dispatchers SET program = 40`)
	applied, err := migrations.Up(t.Context(), dsn)
	var postponed *migrations.PostponedError
	require.ErrorAs(t, err, &postponed, "the next last step waits for the end of these daemons")
	require.Equal(t, int64(32), applied[0])
	require.NoError(t, migrations.Check(t.Context(), conn), "this build can use the schema")
	require.NoError(t, attempt(t, conn, "dispatcherd_producer", `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', 'k')`))
	require.Contains(t, one[string](t, conn, lanesOfPermit), "WHERE ((keys IS NULL) OR (fence > 0))")
	require.GreaterOrEqual(t, one[int](t, conn, `SELECT dispatcherd.compatible_from()`), 30)
}

// A daemon of a former version that was silent during the last step, and so was declared lost, cannot join again.
func TestNoDaemonOfAFormerVersionJoinsAfterTheLastStep(t *testing.T) {
	dsn := pgtest.New(t)
	conn := connect(t, dsn)
	_, err := migrations.Down(t.Context(), dsn, beforeKeys)
	require.NoError(t, err)
	exec(t, conn, `INSERT INTO dispatcherd.dispatchers (name, lease, incarnation, lost_at) VALUES ('silent', '1 s', gen_random_uuid(), now())`)
	_, err = migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	for _, statement := range []string{
		`INSERT INTO dispatcherd.dispatchers (name, lease, incarnation) VALUES ('silent', '1 s', gen_random_uuid())`,
		`INSERT INTO dispatcherd.dispatchers (name, lease, incarnation, program) VALUES ('silent', '1 s', gen_random_uuid(), 40)`,
		`UPDATE dispatcherd.dispatchers SET lost_at = NULL`,
	} {
		_, err = conn.Exec(t.Context(), statement)
		require.ErrorContains(t, err, "program_is_of_schema_41_or_later", statement)
	}
	exec(t, conn, `UPDATE dispatcherd.dispatchers SET leaving = true`)
	exec(t, conn, `INSERT INTO dispatcherd.dispatchers (name, lease, incarnation, program) VALUES ('new', '1 s', gen_random_uuid(), 41)`)
}

// The steps can be undone one by one. Functions, indexes and rights are as before.
func TestStepsOfKeysCanBeUndone(t *testing.T) {
	dsn := pgtest.New(t)
	conn := connect(t, dsn)
	state := func() string {
		return one[string](
			t,
			conn,
			`SELECT string_agg(x, E'\n' ORDER BY x) FROM (SELECT pg_get_functiondef(oid) AS x FROM pg_proc WHERE pronamespace = 'dispatcherd'::regnamespace
			UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'dispatcherd' AND tablename IN ('jobs_live', 'limits', 'key_starts')
			UNION ALL SELECT format('%s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod)) FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
				WHERE relnamespace = 'dispatcherd'::regnamespace AND attnum > 0 AND NOT attisdropped AND relkind IN ('r', 'p') AND NOT relispartition) s`,
		)
	}
	rights := func() string { // of columns that exist
		return one[string](
			t,
			conn,
			`SELECT string_agg(x, E'\n') FROM regexp_split_to_table((`+rightsOfRoles+`), E'\n') x WHERE x NOT LIKE '%pg.dropped%'`,
		)
	}
	_, err := migrations.Down(t.Context(), dsn, beforeKeys)
	require.NoError(t, err)
	before, rightsBefore := state(), rights()
	require.NotContains(t, before, "reject_keys")
	_, err = migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	after, rightsAfter := state(), rights()
	require.NotEqual(t, before, after)
	for _, to := range []int64{keysIndexed, keysIndexed - 1, beforeKeys} {
		_, err = migrations.Down(t.Context(), dsn, to)
		require.NoError(t, err)
	}
	require.Equal(t, before, state())
	require.Equal(t, rightsBefore, rights())
	_, err = migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	require.Equal(t, after, state())
	require.Equal(t, rightsAfter, rights())
}

// Values of keys that the table accepts and rejects. The message names the word and the rule.
func TestInvalidKeysAreRejectedWithTheWordAndTheRule(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	for _, keys := range []string{"k", "tenant:42 stripe*3 cache*all", "a b c d", "ä*1000000"} {
		exec(t, conn, `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', $1)`, keys)
	}
	for keys, part := range map[string]string{
		"": `""`, " ": `""`, "a  b": `""`, "a*": `"a*"`, "a*0": `"a*0"`, "a*1000001": `"a*1000001"`, "*": `"*"`, "a*b": `"a*b"`, "a*2*3": `"a*2*3"`,
		"a b c d e": "5 words", "a\tb": "KEY*COST", "a\n": "KEY*COST",
	} {
		_, err := conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', $1)`, keys)
		require.ErrorContains(t, err, part, "%q", keys)
		require.ErrorContains(t, err, "keys", "%q", keys)
	}
}

// The controller and the programs count per in seconds. A comparison of intervals takes a year for 360 days, so it would accept limits that no
// program can edit.
func TestWindowOfALimitIsBoundedInSeconds(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	const insert = `INSERT INTO dispatcherd.limits (key, rate, per) VALUES (replace($1::text, ' ', '-'), 1, $1::text::interval)`
	for _, per := range []string{"1 year 2 days", "-1 year 361 days"} {
		_, err := conn.Exec(t.Context(), insert, per)
		require.ErrorContains(t, err, "per_is_10_milliseconds_to_31622400_seconds", per)
	}
	for _, per := range []string{"366 days", "1 year", "12 months", "10 ms"} {
		_, err := conn.Exec(t.Context(), insert, per)
		require.NoError(t, err, per)
	}
}
