package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// A schedule with ticks of all outcomes, at fixed times.
const ticksOfEachOutcome = `
INSERT INTO dispatcherd.schedules (name, kind, spec, type) VALUES ('nightly', 'cron', '30 2 * * *', 'report');
INSERT INTO dispatcherd.jobs (type, status, created_at, started_at, finished_at, attempt) VALUES
	('report', 'done', '2026-01-02 03:00:00Z', '2026-01-02 03:04:06Z', '2026-01-02 03:04:07Z', 1);
INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, made_at, job_id, missed, reason) VALUES
	(1, 'a', 'run', '2026-01-02 03:00:00Z', 1, NULL, NULL),
	(1, 'b', 'skipped', '2026-01-02 03:01:00Z', NULL, NULL, 'runs not ended: 1, waiting: 0 (skip)'),
	(1, 'c', 'missed', '2026-01-02 03:02:00Z', NULL, 3, NULL), (1, 'd', 'queued', '2026-01-02 03:03:00Z', NULL, NULL, NULL)`

// A schedule whose high-water mark is far in the future.
const ticksAhead = `;
INSERT INTO dispatcherd.schedules (name, kind, spec, type) VALUES ('ahead', 'cron', '30 2 * * *', 'report');
INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, made_at, planned_at) VALUES
	(2, '2199-01-02T02:30:00Z', 'skipped', '2199-01-02 02:30:00Z', '2199-01-02 02:30:00Z')`

func TestSchedulesAreSetAndShown(t *testing.T) {
	s := serving(t, ticksOfEachOutcome+ticksAhead)
	requireGolden(t, "schedule.txt", transcript(t, serving(t, ""), "schedule list", "schedule list --cursor YQ")+transcript(t, s,
		"schedule list",
		"schedule show nightly",
		"schedule show ahead",
		"schedule next ahead -n 1",
		"schedule rm ahead",
		"schedule show nothing",
		"schedule set daily spec=@daily type=report time_zone=Europe/Berlin jitter=5m starts_at=2030-01-02T03:04:05Z",
		"schedule set daily starts_at= priority=3 payload={\"page\":1}",
		"schedule set sweep kind=interval every=10m type=sweep overlap=allow_all",
		"schedule list",
		"schedule list --limit 1 --cursor ZGFpbHk",
		"schedule next sweep",
		"schedule next nothing",
		"schedule run sweep --key 1",
		"schedule run sweep --key 1",
		"schedule pause sweep",
		"schedule run sweep --key 2",
		"schedule run sweep --key 2 --force",
		"schedule resume sweep",
		"schedule run sweep --key ",
		"schedule set sweep overlap=skip",
		"schedule run sweep --key 3",
		"schedule run sweep --key 3 --force",
		"schedule backfill daily --from 2026-01-02T03:00:00Z --to 2026-01-05T03:00:00Z",
		"schedule backfill daily --from 2026-01-02T03:00:00Z --to 2026-01-05T03:00:00Z -o json",
		"schedule backfill daily --from 2026-01-01T03:00:00Z --to 2026-01-05T03:00:00Z --dry-run",
		"schedule backfill daily --from yesterday --to 2026-01-05T03:00:00Z",
		"schedule backfill sweep --from 2026-01-02T03:00:00Z --to 2026-01-05T03:00:00Z",
		"schedule rm sweep",
		"schedule rm sweep",
		"schedule pause",
		"schedule set daily",
		"schedule set daily color=red",
		"schedule set daily red",
		"schedule set daily spec=*/5",
		"schedule set daily every=often",
		"schedule set daily every=10m",
		"schedule set daily priority=high",
		"schedule set daily priority=11",
		"schedule set daily max_attempts=0",
		"schedule set daily payload={",
		"schedule set daily time_zone=Mars",
		"schedule set daily ends_at=tomorrow",
		"schedule set new",
		"schedule set new type=x",
	))
}

func TestJSONOfEveryScheduleCommandParses(t *testing.T) {
	s := serving(t, ticksOfEachOutcome)
	for _, c := range []struct{ line, key string }{
		{"schedule list", "schedules"}, {"schedule show nightly", "schedule"}, {"schedule next nightly", "next"},
		{"schedule set nightly priority=2", "schedule"},
		{"schedule run nightly", "run"}, {"schedule backfill nightly --from 2026-01-02T03:00:00Z --to 2026-01-05T03:00:00Z", "backfill"},
		{"schedule pause nightly", "paused"}, {"schedule resume nightly", "resumed"}, {"schedule rm nightly", "removed"},
	} {
		got := s.ask(t, "", c.line, "-o", "json")
		require.Equal(t, exit.OK, got.code, got.err)
		var parsed map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(got.out), &parsed), c.line)
		require.Contains(t, parsed, c.key)
		require.Len(t, parsed, 2)
	}
}

// An apply makes the table equal to the file, and repeats nothing.
func TestScheduleFilesAreApplied(t *testing.T) {
	s := serving(t, ticksOfEachOutcome)
	folder := t.TempDir()
	file := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	file("a.toml", `
[nightly]
spec = "0 3 * * *"
type = "report"
time_zone = "Europe/Berlin"
payload = {pages = [1, 2], text = "a"}

[sweep]
kind = "interval"
every = "10m"
type = "sweep"
starts_at = 2026-01-02T04:04:05+01:00
`)
	file("b.toml", "[sweep]\nkind = \"interval\"\nevery = \"10m\"\ntype = \"sweep\"\n")
	file("unknown.toml", "[sweep]\ntype = \"a\"\ncolor = \"red\"\n[nightly]\nsize = 3\n")
	file("invalid.toml", "[sweep]\ntype = \"a\"\nevery = 10\n[nightly]\nspec = \"x\"\ntype = \"b\"\n[third]\nspec = \"@daily\"\n")
	file("flat.toml", "[sweep]\ntype = \"a\"\nspec = \"@daily\"\n[nightly\n")
	file("value.toml", "nightly = 3\n")
	// Postgres rejects the second schedule. The first one is created, and not again.
	file(
		"refused.toml",
		"[a]\ntype = \"a\"\nspec = \"@daily\"\n[b]\ntype = \"b\"\nspec = \"@daily\"\npayload = \""+strings.Repeat("x", 2<<20)+"\"\n",
	)
	apply := func(line string) string { return "schedule apply " + filepath.Join(folder, line) }
	got := transcript(
		t,
		s,
		apply(
			"a.toml --dry-run",
		),
		"schedule list",
		apply("a.toml"),
		"schedule pause sweep",
		apply("a.toml"),
		apply("b.toml"),
		apply("b.toml --prune"),
		apply(
			"b.toml --prune --yes -o json",
		),
		"schedule list",
		apply("unknown.toml"),
		apply("invalid.toml"),
		apply("flat.toml"),
		apply("value.toml"),
		apply("missing.toml"),
		"schedule apply",
	)
	requireGolden(t, "schedule-apply.txt", strings.ReplaceAll(got, folder, "DIR"))
	refused := s.ask(t, "", apply("refused.toml"))
	require.Equal(t, exit.Usage, refused.code, refused.err)
	require.Contains(
		t,
		refused.err,
		"Before the error: 1 created, 0 changed, 0 removed. Repeat the command to make the edits that are left.\n",
	)
	file("refused.toml", "[a]\ntype = \"a\"\nspec = \"@daily\"\n[b]\ntype = \"b\"\nspec = \"@daily\"\n")
	require.Contains(t, s.ask(t, "", apply("refused.toml")).err, "1 created, 0 changed, 0 removed\n")
}

// While an apply waits for the lock of a schedule, its earlier edits have taken effect, and other sessions edit other schedules.
func TestApplyHoldsNoLockWhileItWaits(t *testing.T) {
	s := serving(
		t,
		"INSERT INTO dispatcherd.schedules (name, kind, spec, type) SELECT n, 'cron', '@daily', 'pdf' FROM unnest('{a,b,c}'::text[]) n",
	)
	file := filepath.Join(t.TempDir(), "f.toml")
	require.NoError(t, os.WriteFile(file, []byte("[a]\ntype = \"new\"\nspec = \"@daily\"\n[b]\ntype = \"new\"\nspec = \"@daily\"\n"), 0o600))
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(t.Context(), s.url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	holder, other := connect(), connect()
	tx, err := holder.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM dispatcherd.schedules WHERE name = 'b' FOR UPDATE")
	require.NoError(t, err)
	result := make(chan outcome, 1)
	go func() { result <- s.ask(t, "", "schedule apply "+file) }()
	require.Eventually(t, func() bool {
		var waits bool
		err := other.QueryRow(t.Context(), `SELECT EXISTS (
			SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).
			Scan(&waits)
		return err == nil && waits
	}, 30*time.Second, 5*time.Millisecond)
	for _, statement := range []string{"SET lock_timeout = '1s'", "UPDATE dispatcherd.schedules SET priority = 3 WHERE name IN ('a', 'c')",
		"INSERT INTO dispatcherd.schedules (name, kind, spec, type) VALUES ('d', 'cron', '@daily', 'pdf')"} {
		_, err = other.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	var typ string
	require.NoError(t, other.QueryRow(t.Context(), "SELECT type FROM dispatcherd.schedules WHERE name = 'a'").Scan(&typ))
	require.Equal(t, "new", typ)
	_, err = tx.Exec(t.Context(), "UPDATE dispatcherd.schedules SET priority = 4 WHERE name = 'b'")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	got := <-result
	require.Equal(t, exit.Conflict, got.code, got.err)
	require.Contains(t, got.err, `schedule "b": it was created, edited or deleted after it was read`)
}
