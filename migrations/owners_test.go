package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// producers creates a database, and logins that are members of dispatcherd_producer. Roles belong to the server, so each test has its own
// names. It returns a session of the owner of the schema.
func producers(t *testing.T, further string, names ...string) *pgx.Conn {
	t.Helper()
	conn := connect(t, pgtest.New(t))
	t.Cleanup(func() {
		other, err := pgx.Connect(context.Background(), conn.Config().ConnString())
		require.NoError(t, err)
		_, err = other.Exec(context.Background(), `DROP OWNED BY `+strings.Join(names, ", ")+`; DROP ROLE `+strings.Join(names, ", "))
		require.NoError(t, err)
		require.NoError(t, other.Close(context.Background()))
	})
	for _, name := range names {
		exec(t, conn, `CREATE ROLE `+name+` LOGIN PASSWORD 'x' IN ROLE dispatcherd_producer`)
	}
	exec(t, conn, further)
	return conn
}

// login opens a session of a role. A lock of another session ends its statements after a second.
func login(t *testing.T, conn *pgx.Conn, role string) *pgx.Conn {
	t.Helper()
	config := conn.Config()
	config.User, config.Password = role, "x"
	config.RuntimeParams["lock_timeout"] = "1s"
	other, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	return other
}

// code returns the SQLSTATE of a statement that is refused.
func code(t *testing.T, conn *pgx.Conn, sql string, args ...any) string {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused, sql)
	return refused.Code + " " + refused.Message
}

// hint returns the hint of an error of Postgres.
func hint(err error) string {
	refused, _ := errors.AsType[*pgconn.PgError](err)
	return refused.Hint
}

// usesOfABatch are all statements of producers about batch $1.
var usesOfABatch = []string{
	`INSERT INTO dispatcherd.jobs (type, parent) VALUES ('pdf', $1)`,
	`SELECT dispatcherd.insert_member($1, '{"type": "pdf"}')`,
	`SELECT dispatcherd.open_batch('{"type": "pdf"}', parent => $1)`,
	`SELECT dispatcherd.seal_batch($1)`,
}

func TestBatchOfAnotherOwnerIsRefusedBeforeALock(t *testing.T) {
	conn := producers(t, ``, "owners_lock_a", "owners_lock_b")
	a, b := login(t, conn, "owners_lock_a"), login(t, conn, "owners_lock_b")
	batch := one[int64](t, a, `SELECT dispatcherd.open_batch()`)
	ofDispatchers := one[int64](t, conn, `SELECT dispatcherd.open_batch()`)
	exec(t, conn, `BEGIN; SELECT FROM dispatcherd.batches FOR UPDATE`)
	for _, sql := range usesOfABatch {
		require.Equal(t, fmt.Sprintf("42501 batch %d belongs to role owners_lock_a, to which role owners_lock_b does not belong", batch),
			code(t, b, sql, batch), sql)
		require.Equal(t, fmt.Sprintf("42501 batch %d belongs to the dispatchers, to which role owners_lock_b does not belong", ofDispatchers),
			code(t, b, sql, ofDispatchers), sql)
		require.Equal(t, "P0002 no batch 12345", code(t, b, sql, 12345), sql)
		require.Contains(t, code(t, a, sql, batch), "55P03", "the owner waits for the lock: %s", sql)
	}
	_, err := b.CopyFrom(t.Context(), pgx.Identifier{"dispatcherd", "jobs"}, []string{"type", "parent"},
		pgx.CopyFromRows([][]any{{"pdf", batch}}))
	require.ErrorContains(t, err, "belongs to role owners_lock_a")
	exec(t, conn, `ROLLBACK`)
	for _, sql := range usesOfABatch {
		exec(t, a, sql, batch)
		exec(t, conn, sql, ofDispatchers)
	}
}

// A dispatcher may use each batch, because it inserts and seals for callers of the API.
func TestDispatchersUseBatchesOfAllOwners(t *testing.T) {
	conn := producers(t, ``, "owners_dispatched")
	batch := one[int64](t, login(t, conn, "owners_dispatched"), `SELECT dispatcherd.open_batch()`)
	exec(t, conn, `SET ROLE dispatcherd_dispatcher`)
	for _, sql := range usesOfABatch {
		exec(t, conn, sql, batch)
	}
	require.Equal(t, "owners_dispatched", one[string](t, conn, `SELECT owner FROM dispatcherd.batches WHERE id = $1`, batch))
}

// Dispatchers count the members of a sealed batch. A session that seals it again does not delay them.
func TestSealedBatchIsSealedAgainWithoutALock(t *testing.T) {
	conn := producers(t, ``, "owners_sealer")
	a := login(t, conn, "owners_sealer")
	batch := one[int64](t, a, `SELECT dispatcherd.open_batch()`)
	exec(t, a, `SELECT dispatcherd.seal_batch($1)`, batch)
	exec(t, a, `BEGIN`)
	require.True(t, one[bool](t, a, `SELECT fired FROM dispatcherd.seal_batch($1)`, batch))
	exec(t, conn, `SELECT FROM dispatcherd.batches WHERE id = $1 FOR UPDATE NOWAIT`, batch)
}

func TestMembersOfTheOwnerShareBatchesAndUniqueKeys(t *testing.T) {
	conn := producers(t, `GRANT owners_group TO owners_one, owners_two`, "owners_group", "owners_one", "owners_two", "owners_three")
	a, b, c := login(t, conn, "owners_one"), login(t, conn, "owners_two"), login(t, conn, "owners_three")
	for _, session := range []*pgx.Conn{a, b} {
		exec(t, session, `SET dispatcherd.owner = owners_group`)
	}
	batch := one[int64](t, a, `SELECT dispatcherd.open_batch()`)
	for _, sql := range usesOfABatch {
		require.Contains(t, code(t, c, sql, batch), "42501 batch")
		exec(t, b, sql, batch)
	}
	const insert = `SELECT concat_ws(' ', inserted, owner, until - now() > interval '100 years')
		FROM dispatcherd.insert_unique('{"type": "pdf"}', 'k', '36500 days')`
	require.Equal(t, "t owners_group t", one[string](t, a, insert))
	require.Equal(t, "f owners_group t", one[string](t, b, insert))
	require.Equal(t, "t owners_three t", one[string](t, c, insert))
	exec(t, b, `RESET dispatcherd.owner`)
	require.Equal(t, "t owners_two t", one[string](t, b, insert))
	require.Equal(t, []string{"owners_group / k", "owners_three / k", "owners_two / k"},
		list[string](t, conn, `SELECT unique_key::text FROM dispatcherd.jobs WHERE unique_key IS NOT NULL ORDER BY 1`))
	require.Equal(t, "42501 dispatcherd.owner = owners_group: the owner must be role owners_three or a group of it",
		code(t, c, `SET dispatcherd.owner = owners_group; SELECT dispatcherd.open_batch()`))
	_, err := c.Exec(t.Context(), `SET dispatcherd.owner = owners_group; SELECT dispatcherd.open_batch()`)
	require.Equal(t, "GRANT owners_group TO owners_three, or RESET dispatcherd.owner.", hint(err))
}

func TestUniqueKeysOfOwnersNeverMeet(t *testing.T) {
	conn := producers(t, ``, "owners_key_a", "owners_key_b")
	a, b := login(t, conn, "owners_key_a"), login(t, conn, "owners_key_b")
	const unique = `SELECT inserted FROM dispatcherd.insert_unique('{"type": "pdf"}', 'k', '36500 days')`
	const member = `SELECT dispatcherd.insert_member($1, '{"type": "pdf", "unique_key": "m"}') > 0`
	exec(t, a, `BEGIN`)
	require.True(t, one[bool](t, a, unique))
	require.True(t, one[bool](t, a, member, one[int64](t, a, `SELECT dispatcherd.open_batch()`)))
	exec(t, a, `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', 'owners_key_a / plain')`)
	exec(t, conn, `SET lock_timeout = '1s'`)
	for _, other := range []*pgx.Conn{b, conn} { // neither another producer nor a dispatcher waits
		require.True(t, one[bool](t, other, unique))
		require.True(t, one[bool](t, other, member, one[int64](t, other, `SELECT dispatcherd.open_batch()`)))
	}
	exec(t, conn, `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', 'plain')`)
	for _, key := range []string{"owners_key_a / plain", "plain", "owners_key_a", "owners_key_b", "owners_key_b/x", " / x", "no role / x"} {
		require.Equal(t, fmt.Sprintf(`42501 unique_key "%s": the owner must be role owners_key_b or a group of it`, key),
			code(t, b, `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', $1)`, key))
		_, err := b.CopyFrom(t.Context(), pgx.Identifier{"dispatcherd", "jobs"}, []string{"type", "unique_key"},
			pgx.CopyFromRows([][]any{{"pdf", key}}))
		require.ErrorContains(t, err, "the owner must be role owners_key_b")
	}
	exec(t, b, `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', current_user || ' / plain') ON CONFLICT DO NOTHING`)
	require.Equal(t, `23514 unique key "owners_key_a / k" must have 1 to 512 bytes and not contain " / ", which follows the owner`,
		code(t, conn, `SELECT dispatcherd.insert_unique('{"type": "pdf"}', 'owners_key_a / k')`), "a worker or caller of the API")
	require.Contains(t, code(t, conn, `SELECT dispatcherd.insert_member($1, '{"type": "pdf", "unique_key": "owners_key_a / k"}')`,
		one[int64](t, conn, `SELECT dispatcherd.open_batch()`)), "must not contain")
}

// settings are calls with which a producer sets the columns of a job, by column.
var settings = map[string]string{
	"payload": `"payload": {"n": 1}`, "priority": `"priority": 10`, "run_at": `"run_at": "2100-01-01T00:00:00Z"`,
	"max_attempts": `"max_attempts": 5`, "timeout_ms": `"timeout_ms": 1`, "expected_ms": `"expected_ms": 1`, "keys": `"keys": "k"`,
	"backoff": `"backoff": "fixed:1s"`, "traceparent": `"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`,
}

func TestFunctionsNeedTheRightsOnTheColumnsThatTheySet(t *testing.T) {
	conn := producers(t, ``, "owners_columns")
	a := login(t, conn, "owners_columns")
	batch := one[int64](t, a, `SELECT dispatcherd.open_batch()`)
	calls := func(members string) []string {
		return []string{
			`SELECT dispatcherd.insert_unique('{"type": "pdf"` + members + `}', gen_random_uuid()::text)`,
			fmt.Sprintf(`SELECT dispatcherd.insert_member(%d, '{"type": "pdf"%s}')`, batch, members),
			`SELECT dispatcherd.open_batch('{"type": "pdf"` + members + `}')`,
			`SELECT dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "pdf"}, {"name": "b", "type": "pdf"` + members + `}]}')`,
			`SELECT dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "pdf"}], "callback": {"type": "pdf"` + members + `}}')`,
		}
	}
	for column, member := range settings {
		for _, sql := range calls(", " + member) {
			exec(t, a, sql)
		}
		exec(t, conn, `REVOKE INSERT (`+column+`) ON dispatcherd.jobs FROM dispatcherd_producer`)
		for _, sql := range calls(", " + member) {
			require.Equal(t, "42501 permission denied: owners_columns needs INSERT ("+column+") on dispatcherd.jobs", code(t, a, sql), sql)
		}
		// As clients write a job with defaults.
		for _, sql := range calls(`, "payload": {}, "priority": 0, "max_attempts": null, "keys": null, "run_at": null, "timeout_ms": null`) {
			exec(t, a, sql)
		}
		exec(t, conn, `GRANT INSERT (`+column+`) ON dispatcherd.jobs TO dispatcherd_producer`)
	}
	for column, sql := range map[string]string{
		"type":       calls("")[3],
		"unique_key": calls("")[0],
		"parent":     calls("")[1],
	} {
		exec(t, conn, `REVOKE INSERT (`+column+`) ON dispatcherd.jobs FROM dispatcherd_producer`)
		require.Contains(t, code(t, a, sql), "needs INSERT ("+column+")", sql)
		exec(t, conn, `GRANT INSERT (`+column+`) ON dispatcherd.jobs TO dispatcherd_producer`)
	}
	exec(t, conn, `REVOKE INSERT (parent) ON dispatcherd.jobs FROM dispatcherd_producer`)
	require.Contains(t, code(t, a, `SELECT dispatcherd.open_batch('{"type": "pdf"}', parent => $1)`, batch), "needs INSERT (parent)")
	other := one[int64](t, a, `INSERT INTO dispatcherd.jobs (type) VALUES ('pdf') RETURNING id`)
	const takes = `SELECT dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "pdf", "after": [%d], "takes_results": true}]}')`
	require.Contains(t, code(t, a, fmt.Sprintf(takes, other)), "takes_results needs the right to read the results")
}

// The rights of a function are those of the role that calls it, as they are for an INSERT.
func TestRightsAreThoseOfTheRoleThatCalls(t *testing.T) {
	conn := producers(t, `CREATE ROLE owners_lord IN ROLE dispatcherd_producer; CREATE ROLE owners_apart LOGIN PASSWORD 'x' NOINHERIT;
		REVOKE INSERT (priority) ON dispatcherd.jobs FROM dispatcherd_producer; GRANT INSERT (priority) ON dispatcherd.jobs TO owners_lord;
		GRANT owners_lord TO owners_apart; GRANT CREATE, USAGE ON SCHEMA public TO owners_lord`, "owners_poor")
	t.Cleanup(func() {
		other, err := pgx.Connect(context.Background(), conn.Config().ConnString())
		require.NoError(t, err)
		_, err = other.Exec(context.Background(), `DROP OWNED BY owners_lord, owners_apart; DROP ROLE owners_lord, owners_apart`)
		require.NoError(t, err)
		require.NoError(t, other.Close(context.Background()))
	})
	const call = `SELECT owner FROM dispatcherd.insert_unique('{"type": "pdf", "priority": 10}', gen_random_uuid()::text)`
	poor, apart := login(t, conn, "owners_poor"), login(t, conn, "owners_apart")
	require.Contains(t, code(t, poor, call), "owners_poor needs INSERT (priority)")
	require.Contains(t, code(t, apart, call), "permission denied for schema", "without INHERIT a member has no rights")
	exec(t, apart, `SET ROLE owners_lord`)
	require.Equal(t, "owners_lord", one[string](t, apart, call))
	exec(t, apart, `CREATE FUNCTION public.enqueue() RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
		BEGIN ATOMIC `+call+`; END`)
	require.Equal(t, "owners_lord", one[string](t, poor, `SELECT public.enqueue()`), "a function has the rights of its owner")
	exec(t, conn, `SET ROLE owners_poor`)
	require.Contains(t, code(t, conn, call), "owners_poor needs INSERT (priority)", "the session of a superuser")
	exec(t, conn, `RESET ROLE`)
	require.Nil(t, one[*string](t, conn, call), "a superuser acts as a dispatcher")
	exec(t, conn, `SET dispatcherd.owner = owners_poor`)
	require.Equal(t, "owners_poor", one[string](t, conn, call))
	exec(t, conn, `RESET dispatcherd.owner`)
}

// The first " / " of a unique key in the table separates the owner from the key.
func TestOnlyUniqueKeysRestrictTheNameOfTheOwner(t *testing.T) {
	conn := producers(t, ``, `"svc/web"`, "owners_named")
	a := login(t, conn, "svc/web")
	const unique = `SELECT owner FROM dispatcherd.insert_unique('{"type": "pdf"}', gen_random_uuid()::text)`
	insertPlain := func() {
		_, err := client.InsertMany(t.Context(), a, slices.Values([]client.Job{{Type: "pdf"}}))
		require.NoError(t, err)
		exec(t, a, `SELECT dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "pdf"}]}')`)
		exec(t, a, `SELECT dispatcherd.insert_member(dispatcherd.open_batch(), '{"type": "pdf", "unique_key": null}')`)
	}
	insertPlain()
	require.Equal(t, "svc/web", one[string](t, a, unique))
	_, err := client.InsertMany(t.Context(), a, slices.Values([]client.Job{{Type: "pdf", UniqueKey: "k"}}))
	require.NoError(t, err)
	require.Equal(t, "svc/web / k", one[string](t, conn, `SELECT min(unique_key::text) FROM dispatcherd.jobs WHERE unique_key LIKE '% / k'`))
	former := "svc/web"
	for _, name := range []string{"svc /", "svc / web"} {
		exec(t, conn, `ALTER ROLE "`+former+`" RENAME TO "`+name+`"`)
		former = name
		insertPlain()
		require.Equal(t, `42501 unique_key: the owner must be role `+name+` or a group of it, without " / " in the name`, code(t, a, unique))
		require.Contains(t, code(t, a, `SELECT dispatcherd.insert_member(dispatcherd.open_batch(), '{"type": "pdf", "unique_key": "k"}')`),
			"without \" / \"")
		_, err := client.InsertMany(t.Context(), a, slices.Values([]client.Job{{Type: "pdf", UniqueKey: "k"}}))
		require.Error(t, err, name)
	}
	exec(t, conn, `ALTER ROLE "`+former+`" RENAME TO "svc/web"`)
	exec(t, a, `SET dispatcherd.owner = owners_named`)
	_, err = client.InsertMany(t.Context(), a, slices.Values([]client.Job{{Type: "pdf"}}))
	require.NoError(t, err, "a setting that only batches and unique keys need")
	require.Contains(t, code(t, a, `SELECT dispatcherd.open_batch()`), "42501 dispatcherd.owner = owners_named: the owner must be")
}

// Programs that are older than dispatcherd_producer often have a right on the whole table.
func TestRightToInsertAllColumnsIsNotThatOfADispatcher(t *testing.T) {
	conn := producers(t, `GRANT INSERT ON dispatcherd.jobs TO owners_whole`, "owners_other", "owners_whole")
	batch := one[int64](t, login(t, conn, "owners_other"), `SELECT dispatcherd.open_batch()`)
	whole := login(t, conn, "owners_whole")
	for _, sql := range usesOfABatch {
		require.Contains(t, code(t, whole, sql, batch), "belongs to role owners_other", sql)
	}
	const insert = `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', $1)`
	require.Contains(t, code(t, whole, insert, "owners_other / stolen"), "the owner must be role owners_whole")
	require.Equal(t, "owners_whole",
		one[string](t, whole, `SELECT owner FROM dispatcherd.insert_unique('{"type": "pdf"}', 'k')`), "it has unique keys of its own")
}

// The functions and the API refuse these keys, too.
func TestTableHasUniqueKeysOf1To512BytesWithAtMostOneOwner(t *testing.T) {
	conn := producers(t, ``, "owners_form")
	a := login(t, conn, "owners_form")
	const insert = `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('pdf', $1)`
	long := strings.Repeat("é", 256)
	for key, rule := range map[string]string{
		"owners_form / ": "unique_key_is_1_to_512_bytes", "owners_form / " + long + "k": "unique_key_is_1_to_512_bytes",
		"owners_form / a / b": "unique_key_has_at_most_one_owner",
	} {
		for _, session := range []*pgx.Conn{a, conn} {
			require.Contains(t, code(t, session, insert, key), rule, key)
		}
	}
	require.Contains(t, code(t, conn, insert, ""), "unique_key_is_1_to_512_bytes")
	require.Contains(t, code(t, conn, insert, long+"k"), "unique_key_is_1_to_512_bytes", "a dispatcher without owner")
	exec(t, conn, insert, long)
	for _, key := range []string{long, "/ k", "k /", "a/b"} {
		exec(t, a, insert, "owners_form / "+key)
	}
}

// A function with the rights of its owner learns by its last argument who calls it.
func TestCallerCannotBeForged(t *testing.T) {
	conn := producers(t, `CREATE SCHEMA own AUTHORIZATION owners_thief`, "owners_victim", "owners_thief")
	batch := one[int64](t, login(t, conn, "owners_victim"), `SELECT dispatcherd.open_batch()`)
	thief := login(t, conn, "owners_thief")
	exec(t, thief, `CREATE FUNCTION own.eq(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT true';
		CREATE OPERATOR own.= (LEFTARG = name, RIGHTARG = name, FUNCTION = own.eq); SET search_path = own, pg_catalog`)
	for _, forged := range []string{
		`'owners_victim'`, `NULL`, `'owners_victim'::name`, `'dispatcherd_dispatcher'`, `session_user || '2'`,
		`(SELECT current_user::dispatcherd.caller WHERE false)`,
		`(SELECT c FROM (SELECT 1) x LEFT JOIN (SELECT current_user::dispatcherd.caller AS c) y ON false)`,
		`('{owners_victim}'::dispatcherd.caller[])[1]`,
		`(SELECT c FROM jsonb_to_record('{"c": "owners_victim"}') AS r (c dispatcherd.caller))`,
	} {
		for _, sql := range []string{
			`SELECT dispatcherd.seal_batch(%d, %s)`, `SELECT dispatcherd.owns_batch(%d, %s)`,
			`SELECT dispatcherd.insert_member(%d, '{"type": "pdf"}', %s)`,
			`SELECT dispatcherd.open_batch('{"type": "pdf"}', parent => %d, caller => %s)`,
		} {
			_, err := thief.Exec(t.Context(), fmt.Sprintf(sql, batch, forged))
			require.Error(t, err, "%s: %s", sql, forged)
		}
		for _, sql := range []string{
			`SELECT dispatcherd.insert_unique('{"type": "pdf"}', 'k', NULL, %s)`, `SELECT dispatcherd.open_batch(caller => %s)`,
			`SELECT dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "pdf"}]}', %s)`,
		} {
			_, err := thief.Exec(t.Context(), fmt.Sprintf(sql, forged))
			require.Error(t, err, "%s: %s", sql, forged)
		}
	}
	_, err := thief.Exec(t.Context(), `SELECT dispatcherd.seal_batch($1, $2)`, batch, "owners_victim")
	require.ErrorContains(t, err, "caller_is_the_current_user")
	for _, sql := range []string{ // which would keep a value for a role that has lost its rights
		`CREATE TABLE own.kept (c dispatcherd.caller)`, `CREATE TEMP TABLE kept AS SELECT current_user::dispatcherd.caller AS c`,
		`CREATE FUNCTION own.kept(dispatcherd.caller) RETURNS int LANGUAGE sql AS 'SELECT 1'`,
		`CREATE TYPE own.kept AS (c dispatcherd.caller)`, `CREATE DOMAIN own.kept AS dispatcherd.caller`,
	} {
		require.Equal(t, "42501 permission denied for type dispatcherd.caller", code(t, thief, sql), sql)
	}
	require.Nil(t, one[*string](t, conn, `SELECT string_agg(DISTINCT status::text, ' ') FROM dispatcherd.jobs`))
}

// Each function that runs with the rights of its owner, and that producers may execute, learns who calls it.
func TestFunctionsOfProducersKnowTheirCaller(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	require.Equal(t, []string{"insert_flow", "insert_member", "insert_unique", "open_batch", "owns_batch", "seal_batch"},
		list[string](t, conn, `SELECT proname::text FROM pg_proc WHERE pronamespace = 'dispatcherd'::regnamespace AND prosecdef
			AND 'dispatcherd.caller'::regtype = ANY (proargtypes) ORDER BY 1`))
	require.Empty(t, list[string](t, conn, `SELECT proname::text FROM pg_proc p, pg_roles r WHERE pronamespace = 'dispatcherd'::regnamespace
		AND prosecdef AND NOT 'dispatcherd.caller'::regtype = ANY (proargtypes) AND has_function_privilege(r.oid, p.oid, 'EXECUTE')
		AND r.rolname IN ('dispatcherd_producer', 'dispatcherd_reader', 'dispatcherd_operator')`))
}
