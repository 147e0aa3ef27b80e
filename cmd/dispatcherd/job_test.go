package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// oneOfEach fills the table with a job in each status, at fixed times: 1 done,
// 2 failed, 3 cancelled, 4 running, 5 pending.
const oneOfEach = `
INSERT INTO dispatcherd.dispatchers (name, lease) VALUES ('here', '1 day');
INSERT INTO dispatcherd.jobs (type, status, priority, run_at, created_at, started_at, finished_at, attempt, failures, crashes,
	dispatcher, timeout_ms, payload, result, progress, errors)
VALUES
('pdf', 'done', 0, '2026-01-02 03:04:05Z', '2026-01-02 03:00:00Z', '2026-01-02 03:04:06Z', '2026-01-02 03:04:07Z', 1, 0, 0, 1, NULL,
	'{"page": 1}', '{"bytes": 7}', NULL, NULL),
('pdf', 'failed', 3, '2026-01-02 03:04:05Z', '2026-01-02 03:00:00Z', '2026-01-02 03:04:06Z', '2026-01-02 03:04:07Z', 6, 5, 1, 1,
	90000, '{"page": 2}', NULL, NULL,
	'[{"attempt": 5, "at": "2026-01-02T03:04:05Z", "outcome": "crashed", "error": "the worker died"},
		{"attempt": 6, "at": "2026-01-02T03:04:06Z", "outcome": "failed",
			"error": "page 2 is torn\nand wet, which is more than a converter of this price can be expected to stand"}]'),
('excel', 'cancelled', 10, '2026-01-02 03:04:05Z', '2026-01-02 03:00:00Z', NULL, '2026-01-02 03:04:07Z', 0, 0, 0, NULL, NULL, '{}',
	NULL, NULL, NULL),
('excel', 'running', 10, '2026-01-02 03:04:05Z', '2026-01-02 03:00:00Z', '2026-01-02 03:04:06Z', NULL, 2, 0, 0, 1, NULL, '{}', NULL,
	'0.5', NULL),
('pdf', 'pending', 0, '2030-01-02 03:04:05Z', '2026-01-02 03:00:00Z', NULL, NULL, 0, 0, 0, NULL, NULL, '{}', NULL, NULL, NULL)`

// transcript runs command lines in order and returns what a user would see.
func transcript(t *testing.T, s served, lines ...string) string {
	t.Helper()
	var b strings.Builder
	for _, line := range lines {
		got := s.ask(t, "", line)
		require.Eventually(t, func() bool { // the ends are settled
			return len(query(t, s.url, `SELECT 'left' FROM dispatcherd.ends`)) == 0
		}, 30*time.Second, time.Millisecond)
		fmt.Fprintf(&b, "$ dispatcherd %s\n%s%s", line, got.out, got.err)
		if got.code != exit.OK {
			fmt.Fprintf(&b, "(exit code %d)\n", got.code)
		}
		b.WriteString("\n")
	}
	text := regexp.MustCompile(`"(ran|waited)_seconds": \d+\.\d+`).ReplaceAllString(b.String(), `"${1}_seconds": AGE`)
	text = regexp.MustCompile(`(\b\d+ms|\b\d+\.\d+s|\b\d+h\d+m\d+s)`).ReplaceAllString(text, "AGE")
	text = regexp.MustCompile(`(\S)  +`).ReplaceAllString(text, "$1  ") // the widths of columns depend on ages
	return withoutNow(strings.ReplaceAll(text, fmt.Sprint("uid=", os.Getuid()), "uid=UID"))
}

func TestJobsAreListedAndShown(t *testing.T) {
	s := serving(t, oneOfEach)
	requireGolden(t, "job-list.txt", transcript(t, s,
		"job list",
		"job list --status failed -o json",
		"job list --type excel",
		"job list --type nothing",
		"job list --type nothing -o json",
		"job list --limit 2",
		"job list --limit 2 --cursor NA",
		"job list --limit 0",
		"job list --status lost",
		"job get 2",
		"job get 4",
		"job get 1 -o json",
		"job get 99",
		"job get seven",
		"job get",
		"job get 1 2",
	))
}

func TestMissingDispatcherIsNamed(t *testing.T) {
	got := invocation{args: []string{"job", "list"}, env: map[string]string{"DISPATCHERD_API_SOCKET": "/does/not/exist"}}.runs(t)
	require.Equal(t, exit.Unavailable, got.code)
	require.Contains(t, got.err, "no dispatcher answers on /does/not/exist")
	require.Contains(t, got.err, "start one with 'dispatcherd dev' or 'dispatcherd serve', or name a running one with --api-socket or --api")
	got = invocation{args: []string{"job", "list", "--database-url", "postgres://h/d"}}.runs(t)
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, `"dispatcherd job list" does not use Postgres itself`)
}

func TestJobsAreRetriedAndCancelled(t *testing.T) {
	s := serving(t, oneOfEach)
	requireGolden(t, "job-change.txt", transcript(t, s,
		"job cancel",
		"job cancel 5 4",
		"job cancel 5",
		"job cancel 99 -o json",
		"job retry",
		"job retry 5 1 99",
		"job retry 99 1",
		"job retry 4",
		"job retry --status failed 2",
		"job retry --status done",
		"job retry --type pdf",
		"job retry --status failed",
		"job retry --status failed --yes",
		"job retry --status failed --yes -o json",
		"job list",
	))
}

// The dispatcher judges the filter, so each flag that selects jobs suffices alone.
func TestEachFilterSufficesForAChangeOfAllItsJobs(t *testing.T) {
	s := serving(t, `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', 'bank'), ('pdf', 'bank'), ('pdf', 'post');
		INSERT INTO dispatcherd.jobs (type, status, finished_at, failures, errors)
		VALUES ('excel', 'failed', now(), 5, '[{"attempt": 1, "outcome": "failed", "error": "Boom"}]'), ('excel', 'cancelled', now(), 0, '[]')`)
	const silent = "dispatcher here did not answer within 500ms; its rows are missing.\n"
	for _, c := range []struct{ line, out, err string }{
		{"job cancel --key bank --count 2", "2 jobs cancelled\n", ""},
		{"job cancel --worker vm-18194 --yes", "0 jobs cancelled\n", silent},
		{"job cancel --waited-longer-than 10h --yes", "0 jobs cancelled\n", ""},
		{"job retry --error BOOM --yes", "1 job retried\n", ""},
		{"job retry --ended-since 1h --key bank --yes", "2 jobs retried\n", ""},
		{"job cancel --status pending,running --yes", "4 jobs cancelled\n", ""},
		{"job retry --status failed --status cancelled --yes", "5 jobs retried\n", ""},
	} {
		require.Equal(t, outcome{out: c.out, err: c.err}, s.ask(t, "", c.line), c.line)
	}
	got := s.ask(t, "", "job list --status pending,gone")
	require.Contains(t, got.err, `--status is "pending,gone": give waiting, pending, running, done, failed or cancelled`)
	require.Equal(t, exit.Usage, got.code)
}

func TestJSONOfEveryJobCommandParses(t *testing.T) {
	s := serving(t, oneOfEach)
	for line, key := range map[string]string{
		"job list": "jobs", "job get 1": "job", "job cancel 5": "cancelled", "job retry 2": "retried", "job insert --type pdf": "inserted",
	} {
		got := s.ask(t, "", line, "-o", "json")
		require.Equal(t, exit.OK, got.code, got.err)
		var parsed map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(got.out), &parsed), line)
		require.Equal(t, "1", string(parsed["schema_version"]))
		require.Contains(t, parsed, key)
		require.Len(t, parsed, 2)
	}
}

// A trigger refuses to cancel job 2. The command says that one job was left out.
func TestBulkCancelCountsTheJobsThatItLeftOut(t *testing.T) {
	s := serving(t, `INSERT INTO dispatcherd.jobs (type) VALUES ('pdf'), ('pdf'), ('pdf');
		CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'kept'; END $$;
		CREATE TRIGGER keep BEFORE DELETE ON dispatcherd.jobs_live FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION public.keep()`)
	require.Equal(t, outcome{
		out: "2 jobs cancelled\n",
		err: "1 job selected, but not changed: ended or started meanwhile, or refused.\n",
	}, s.ask(t, "", "job cancel --type pdf --yes"))
	got := s.ask(t, "", "job cancel 2")
	require.Equal(t, exit.Conflict, got.code)
	require.Contains(t, got.err, "Postgres rejects the job: kept")
}

// A retry of more jobs than one call changes retries all of them, and no others.
func TestRetryOfManyJobsRetriesAll(t *testing.T) {
	const n = 2007
	s := serving(t, fmt.Sprintf(`INSERT INTO dispatcherd.jobs (type, status, finished_at, failures)
		SELECT CASE WHEN i <= %d THEN 'pdf' ELSE 'excel' END, 'failed', now(), 5 FROM generate_series(1, %d) i`, n, n+3))
	require.Equal(t, outcome{out: fmt.Sprintf("%d jobs retried\n", n)}, s.ask(t, "", "job retry --type pdf --status failed --yes"))
	require.Equal(
		t,
		[]string{"excel failed 3", fmt.Sprintf("pdf pending %d", n)},
		query(t, s.url, `SELECT concat_ws(' ', type, status, count(*)) FROM dispatcherd.jobs GROUP BY type, status ORDER BY type`),
	)
}
