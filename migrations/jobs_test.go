package migrations_test

import (
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func one[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}

func TestInsertAndCopyNeedNothingButATypeAndAPayload(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `INSERT INTO dispatcherd.jobs (type, payload) VALUES ('pdf', '{"page": 1}')`)
	n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"dispatcherd", "jobs"}, []string{"type"},
		pgx.CopyFromRows([][]any{{"pdf"}, {"excel"}}))
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.True(t, one[bool](t, conn, `
		SELECT bool_and(status = 'pending' AND priority = 0 AND attempt = 0 AND failures = 0 AND crashes = 0
			AND max_attempts IS NULL AND run_at <= now() AND created_at <= now() AND dispatcher IS NULL) AND count(*) = 3
			AND count(DISTINCT id) = 3 FROM dispatcherd.jobs`))
	require.Equal(t, `{}`, one[string](t, conn, `SELECT payload::text FROM dispatcherd.jobs WHERE type = 'excel'`))
}

func TestInvalidColumnsAreRejectedWithAClearMessage(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	for _, c := range []struct{ column, value, says string }{
		{"priority", "11", "priority_is_0_to_10"},
		{"priority", "-1", "priority_is_0_to_10"},
		{"type", "''", "type_is_1_to_128_bytes"},
		{"type", "repeat('ü', 65)", "type_is_1_to_128_bytes"},
		{"type", `E'a\nb'`, "type_has_no_invisible_character"},
		{"type", "NULL", `null value in column "type"`},
		{"attempt", "-1", "attempt_is_not_negative"},
		{"max_attempts", "0", "max_attempts_is_at_least_1"},
		{"failures", "-1", "count_is_not_negative"},
		{"crashes", "-1", "count_is_not_negative"},
		{"timeout_ms", "0", "timeout_ms_is_positive"},
		{"expected_ms", "0", "expected_ms_is_1_to_2147483647"},
		{"expected_ms", "-1", "expected_ms_is_1_to_2147483647"},
		{"expected_ms", "2147483648", "integer out of range"},
		{"expected_ms", "'soon'", `invalid input syntax for type integer: "soon"`},
		{"backoff", "''", "backoff_is_exponential_fixed_or_list"},
		{"traceparent", "''", "traceparent_is_w3c_trace_context"},
		{"traceparent", "'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0'", "traceparent_is_w3c_trace_context"},
		{"run_at", "'-infinity'", "run_at_is_between_1970_and_2200"},
		{"run_at", "'infinity'", "run_at_is_between_1970_and_2200"},
		{"id", "0", "id_is_positive"},
		{"status", "'paused'", `invalid input value for enum dispatcherd.status: "paused"`},
		{"status", "'running'", "running_has_a_dispatcher"},
		{"payload", `'{"open": '`, "invalid input syntax for type json"},
		{"payload", `to_jsonb(repeat('x', 1000001))`, "payload_is_at_most_1_megabyte_and_8_as_text"},
	} {
		_, err := conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, `+c.column+`) VALUES ('pdf', `+c.value+`)`)
		if c.column == "type" {
			_, err = conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type) VALUES (`+c.value+`)`)
		}
		require.ErrorContains(t, err, c.says, "%s = %s", c.column, c.value)
	}
	require.Zero(t, one[int](t, conn, `SELECT count(*) FROM dispatcherd.jobs`))
}

func TestInsertsNotifyOnlyWhileADispatcherIsSubscribed(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `LISTEN dispatcherd`)
	notifications := func() (n int) {
		// A round trip delivers everything that was sent before. Postgres delivers
		// a session's own notifications together with the answer.
		exec(t, conn, `INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, 100)`)
		_, err := conn.CopyFrom(t.Context(), pgx.Identifier{"dispatcherd", "jobs"}, []string{"type"}, pgx.CopyFromRows([][]any{{"a"}, {"b"}}))
		require.NoError(t, err)
		exec(t, conn, `NOTIFY dispatcherd, 'end'`)
		for {
			note, err := conn.WaitForNotification(t.Context())
			require.NoError(t, err)
			if note.Payload == "end" {
				return n
			}
			n++
		}
	}
	require.Equal(t, 0, notifications(), "no dispatcher is subscribed")
	exec(t, conn, `INSERT INTO dispatcherd.dispatchers (name, lease, armed) VALUES ('a', '10s', true)`)
	require.Equal(t, 2, notifications(), "one per statement")
	exec(t, conn, `CREATE OR REPLACE FUNCTION dispatcherd.may_notify() RETURNS boolean LANGUAGE sql AS 'SELECT false'`)
	require.Equal(t, 0, notifications(), "the queue of the server is half full")
	exec(t, conn, `CREATE OR REPLACE FUNCTION dispatcherd.may_notify() RETURNS boolean LANGUAGE sql AS 'SELECT true'`)
	require.Equal(t, 2, notifications())
	exec(t, conn, `UPDATE dispatcherd.dispatchers SET armed = false`)
	require.Equal(t, 0, notifications())
}

func TestNotificationOfATransactionWithOneRowNamesIt(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `INSERT INTO dispatcherd.dispatchers (name, lease, armed) VALUES ('a', '10s', true)`)
	exec(t, conn, `LISTEN dispatcherd`)
	received := func(statements ...string) (payloads []string) {
		for _, s := range append(statements, `NOTIFY dispatcherd, 'end'`) {
			exec(t, conn, s)
		}
		for {
			note, err := conn.WaitForNotification(t.Context())
			require.NoError(t, err)
			if note.Payload == "end" {
				return payloads
			}
			payloads = append(payloads, note.Payload)
		}
	}
	insert := func(values string) string {
		return `INSERT INTO dispatcherd.jobs (type, priority, run_at) VALUES ` + values
	}
	require.Equal(
		t,
		[]string{"jobs"},
		received(`INSERT INTO dispatcherd.jobs (id, type) VALUES (1000, 'pdf')`),
		"an id by hand, before the sequence was used",
	)
	require.Equal(t, []string{"jobs 1 7 1772539200123456 p d f"}, received(insert(`('p d f', 7, '2026-03-03 12:00:00.123456Z')`)))
	require.Equal(t, []string{"jobs"}, received(insert(`('pdf', 1, now()), ('pdf', 2, now())`)), "two rows")
	require.Equal(t, []string{"jobs"}, received(insert(`('pdf', 1, now() + interval '1 hour')`)), "not yet due")
	require.Equal(
		t,
		[]string{"jobs 5 1 1000000 pdf", "jobs"},
		received(
			"BEGIN",
			insert(`('pdf', 1, 'epoch'::timestamptz + interval '1 s')`),
			insert(`('pdf', 2, now())`),
			insert(`('pdf', 3, now())`),
			"COMMIT",
		),
		"the second payload stands for all further rows, whatever the number of statements",
	)
	require.Equal(
		t,
		[]string{"jobs 9 1 1000000 pdf"},
		received(
			"BEGIN",
			"SAVEPOINT s",
			insert(`('pdf', 1, now())`),
			"ROLLBACK TO s",
			insert(`('pdf', 1, 'epoch'::timestamptz + interval '1 s')`),
			"COMMIT",
		),
		"rolled back statements do not count",
	)
	require.Equal(
		t,
		[]string{"jobs 10 0 1000000 pdf"},
		received(insert(`('pdf', 0, 'epoch'::timestamptz + interval '1 s')`)),
		"each transaction anew",
	)
}

// The controller reads jobs with keys after a notification of their own.
func TestInsertsOfJobsWithKeysNotifyTheController(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `LISTEN dispatcherd`)
	received := func(statements ...string) (payloads []string) {
		for _, s := range append(statements, `NOTIFY dispatcherd, 'end'`) {
			exec(t, conn, s)
		}
		for {
			note, err := conn.WaitForNotification(t.Context())
			require.NoError(t, err)
			if note.Payload == "end" {
				return payloads
			}
			payloads = append(payloads, note.Payload)
		}
	}
	insert := func(values string) string {
		return `INSERT INTO dispatcherd.jobs (type, keys, run_at) VALUES ` + values
	}
	require.Empty(t, received(insert(`('pdf', 'k', now())`)), "no dispatcher is subscribed")
	exec(t, conn, `INSERT INTO dispatcherd.dispatchers (name, lease, armed) VALUES ('a', '10s', true)`)
	both := []string{"keys", "jobs"}
	require.Equal(t, both, received(insert(`('pdf', 'k', now())`)))
	require.Equal(t, both, received(insert(`('pdf', 'k', now() + interval '1 hour')`)))
	require.Equal(t, both, received(insert(`('pdf', NULL, now()), ('pdf', 'k', now())`)))
	require.Equal(t, both, received(`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'pdf', 'k' FROM generate_series(1, 100)`))
	require.Equal(t, []string{"jobs 106 0 1000000 pdf"}, received(insert(`('pdf', NULL, 'epoch'::timestamptz + interval '1 s')`)))
}

// Logical replication often publishes all tables of a database. Postgres then
// forbids the deletion of rows from tables without a replica identity.
func TestRowsCanBeDeletedDespiteAPublicationOfAllTables(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	exec(t, conn, `CREATE PUBLICATION everything FOR ALL TABLES`)
	exec(
		t,
		conn,
		`INSERT INTO dispatcherd.jobs (type, status, finished_at)
			VALUES ('pdf', 'done', '2020-01-01 12:00Z'), ('pdf', 'failed', now()), ('pdf', 'cancelled', now())`,
	)
	exec(
		t,
		conn,
		`INSERT INTO dispatcherd.jobs (type, status, finished_at) SELECT 'pdf', 'failed', date_trunc('day', now()) + interval '5 days'`,
	)
	exec(t, conn, `SELECT dispatcherd.create_partition(s, current_date + 4, current_date + 5)
		FROM unnest('{done,failed,cancelled}'::dispatcherd.status[]) s`)
	exec(t, conn, `DELETE FROM dispatcherd.jobs_done_rest`)
	require.Zero(t, one[int](t, conn, `SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`))
	exec(
		t,
		conn,
		`INSERT INTO dispatcherd.jobs (type, status, finished_at) SELECT 'pdf', 'failed', date_trunc('day', now()) + interval '4 days'`,
	)
	require.Equal(
		t,
		4,
		one[int](t, conn, `SELECT dispatcherd.run_again(array_agg(id::bigint),
			array_fill('pending'::dispatcherd.status, ARRAY[count(*)::int]), NULL) FROM dispatcherd.jobs`),
		"from old and new partitions, and from the default one",
	)
	require.Positive(t, one[int](t, conn,
		`SELECT dispatcherd.end_idle(array_agg(id::bigint), 'cancelled', session_user, NULL) FROM dispatcherd.jobs`))
}

// A refusal names the value and what is possible. It quotes no row.
func TestRefusalsOfFunctionsNameTheValue(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	for sql, want := range map[string]string{
		`open_batch('{"type": "x"}', 'sometimes')`: `23514 run_when is "sometimes", must be done, ended or failed`,
		`open_batch(run_when => 'sometimes')`:      `23514 run_when is "sometimes", must be done, ended or failed`,
		`insert_flow('{"nodes": [{"name": "a", "type": "x"}], "callback": {"type": "x", "run_when": "sometimes"}}')`: `23514 ` +
			`flow: run_when of the callback is "sometimes", must be done, ended or failed`,
		`insert_flow('{"nodes": [{"name": "a", "type": "x", "unique_key": "k"}]}')`: `23514 ` +
			`flow: node "a": "unique_key" is not possible here`,
		`open_batch('{"type": "x", "unique_key": "k"}')`:        `23514 the callback: "unique_key" is not possible here`,
		`insert_unique('{"type": "x", "status": "done"}', 'k')`: `23514 the job: "status" cannot be set`,
		`insert_unique('{"type": "x", "color": "red"}', 'k')`:   `23514 the job: "color" is unknown`,
		`insert_member(NULL, '{"type": "x"}')`:                  `22004 batch is NULL, must be the id that open_batch returned`,
	} {
		require.Equal(t, want, code(t, conn, `SELECT dispatcherd.`+sql), sql)
	}
	require.Equal(t, `23514 new row for relation "operations" violates check constraint "kind_is_one_that_its_comment_lists"`,
		code(t, conn, `INSERT INTO dispatcherd.operations (kind, target) VALUES ('halt', 1)`))
}

// Columns that a later version adds belong into one of the lists of job_problem.
func TestRefusalsOfMembersKnowAllColumns(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	for _, column := range one[[]string](t, conn, `SELECT array_agg(attname::text) FROM pg_attribute
		WHERE attrelid = 'dispatcherd.jobs'::regclass AND attnum > 0 AND NOT attisdropped`) {
		problem := one[string](t, conn,
			`SELECT coalesce(dispatcherd.job_problem(jsonb_build_object('type', 'x', $1::text, 'x'), '{}'), '')`, column)
		require.NotContains(t, problem, "is unknown", column)
	}
}
