package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// query returns the rows of a statement that has a single text column.
func query(t *testing.T, url, sql string, args ...any) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return texts
}

const wholeJob = `SELECT concat_ws(' ', type, priority, payload, coalesce(max_attempts::text, 'none'), coalesce(timeout_ms::text, 'none'),
	coalesce(expected_ms::text, 'none'),
	CASE WHEN run_at - created_at BETWEEN '0' AND interval '1 minute' THEN 'now'
		ELSE to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') END)
	FROM dispatcherd.jobs ORDER BY id`

func TestInsertedJobHasTheDefaultsOfTheTable(t *testing.T) {
	s := serving(t, "")
	first := s.ask(t, "", "job insert --type pdf")
	require.Equal(t, exit.OK, first.code, first.err)
	id, err := strconv.Atoi(strings.TrimSpace(first.out))
	require.NoError(t, err, "the output is the id and nothing else")

	second := s.ask(t,
		` {"page": 2} `,
		"job insert --type excel --priority 7 --payload-file - --run-at 2030-01-31T08:00:00+01:00 --max-attempts 2 --timeout 90s "+
			"--expected 20m -o json",
	)
	require.Equal(t, exit.OK, second.code, second.err)
	require.JSONEq(t, fmt.Sprintf(`{"schema_version": 1, "inserted": {"count": 1, "ids": [%d]}}`, id+1), second.out)

	require.Equal(t, []string{
		"pdf 0 {} none none none now",
		`excel 7 {"page": 2} 2 90000 1200000 2030-01-31 07:00`,
	}, query(t, s.url, wholeJob))
}

// noSlot is the warning about a type that no worker supports.
func noSlot(typ string) string {
	return fmt.Sprintf("warning: no slot of any dispatcher supports type %q: its jobs wait until a worker supports it\n", typ)
}

func TestAStreamAndSingleInsertsGiveTheSameDefaults(t *testing.T) {
	s := serving(t, "")
	got := s.ask(t, `{"type":"pdf"}
{"type":"pdf","priority":null,"payload":{"a":1},"timeout_ms":5,"expected_ms":7}

{"type":"excel","priority":10,"run_at":"2030-01-31T08:00:00Z","max_attempts":1}
`, "job insert -")
	require.Equal(t, exit.OK, got.code, got.err)
	require.Equal(t, noSlot("excel")+noSlot("pdf")+"3 jobs inserted\n", got.err)
	require.Equal(t, strings.Join(query(t, s.url, `SELECT id::text FROM dispatcherd.jobs ORDER BY id`), "\n")+"\n", got.out)
	require.Equal(t, []string{
		"pdf 0 {} none none none now",
		`pdf 0 {"a": 1} none 5 7 now`,
		"excel 10 {} 1 none none 2030-01-31 08:00",
	}, query(t, s.url, wholeJob), "ids follow the lines, so that equal jobs run in the order of the file")
}

func TestInvalidLineRejectsTheWholeStream(t *testing.T) {
	s := serving(t, "")
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	require.NoError(
		t,
		os.WriteFile(file, []byte("{\"type\":\"pdf\"}\n{\"type\":\"pdf\",\"priority\":11}\n{\"type\":\"\"}\n{\"type\":\"pdf\"}\n"), 0o644),
	)

	got := s.ask(t, "", "job insert", file)
	require.Equal(t, exit.Usage, got.code)
	require.Equal(t, "line 2: priority 11 is outside 0..10\nline 3: type is missing\n"+
		"dispatcherd: 2 bad lines; nothing was inserted (--skip-bad skips bad lines)\nSee 'dispatcherd job insert --help'.\n", got.err)
	require.Empty(t, query(t, s.url, wholeJob))

	got = s.ask(t, "", "job insert --skip-bad -o json", file)
	require.Equal(t, exit.OK, got.code, got.err)
	require.Equal(t, "skipping line 2: priority 11 is outside 0..10\nskipping line 3: type is missing\n"+noSlot("pdf"), got.err)
	ids := strings.Join(query(t, s.url, `SELECT id::text FROM dispatcherd.jobs ORDER BY id`), ", ")
	require.JSONEq(t, `{"schema_version": 1, "inserted": {"count": 2, "skipped": 2, "ids": [`+ids+`]}}`, got.out)
	require.Len(t, query(t, s.url, wholeJob), 2)
}

// storedLarger is a payload that takes more than 1,000,000 bytes in Postgres only.
var storedLarger = "[1" + strings.Repeat(",1", 200_000) + "]"

func TestLineThatPostgresRefusesIsNamed(t *testing.T) {
	s := serving(t, "")
	big := `{"type":"pdf","payload":` + storedLarger + `}`
	got := s.ask(t, "{\"type\":\"pdf\"}\n\n"+big, "job insert -")
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t,
		got.err,
		"line 3: the payload has more than 1,000,000 bytes as Postgres stores it: store large data outside the job and refer to "+
			"it; nothing was inserted\n",
	)
	require.Less(t, len(got.err), 500, "the payload is not repeated")
	require.Empty(t, query(t, s.url, wholeJob))
}

func TestTooLargePayloadIsAUsageError(t *testing.T) {
	s := serving(t, "")
	got := s.ask(t, storedLarger, "job insert --type pdf --payload-file -")
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err,
		"the payload has more than 1,000,000 bytes as Postgres stores it: store large data outside the job and refer to it\n")
	require.Less(t, len(got.err), 500, "the payload is not repeated")
	got = s.ask(t, `"`+strings.Repeat("x", 1_000_100)+`"`, "job insert --type pdf --payload-file -")
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, "at most 1000000 bytes are accepted for one job")
	require.Empty(t, query(t, s.url, wholeJob))
}

func TestStreamLargerThanACopyBufferIsInserted(t *testing.T) {
	s := serving(t, "")
	const n = 20_000
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "{\"type\":\"pdf\",\"payload\":%d}\n", i)
	}
	got := s.ask(t, lines.String(), "job insert --quiet -")
	require.Equal(t, fmt.Sprintf("%d jobs inserted\n", n), got.out, got.err)
	require.Equal(t, []string{strconv.Itoa(n * (n - 1) / 2)}, query(t, s.url, `SELECT sum(payload::text::bigint)::text FROM dispatcherd.jobs`))
}

func TestUsageErrorsOfInsertExit2(t *testing.T) {
	s := serving(t, "")
	var report strings.Builder
	for _, line := range []string{
		"job insert",
		"job insert jobs.jsonl --type pdf",
		"job insert a b",
		"job insert --type pdf --payload {",
		"job insert --type pdf --payload 1 --payload-file x",
		"job insert --type pdf --priority 11",
		"job insert --type pdf --priority many",
		"job insert --type pdf --max-attempts 0",
		"job insert --type pdf --timeout 0s",
		"job insert --type pdf --run-at tomorrow",
		"job insert --type pdf --run-at 2300-01-01T00:00:00Z",
		"job insert --type=",
	} {
		got := s.ask(t, "", line)
		require.Equal(t, exit.Usage, got.code, "%s: %s", line, got.err)
		fmt.Fprintf(&report, "$ dispatcherd %s\n%s\n", line, got.err)
	}
	requireGolden(t, "job-insert-errors.txt", report.String())
	require.Equal(t, exit.NotFound, s.ask(t, "", "job insert /does/not/exist").code)
}
