package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// The clock of the client is decades behind that of Postgres. All durations count by the clock of Postgres.
func TestDurationsCountByTheClockOfPostgres(t *testing.T) {
	s := serving(t, `INSERT INTO dispatcherd.jobs (type, created_at) VALUES ('old', now() - interval '3 h'), ('new', now());
		INSERT INTO dispatcherd.schedules (name, spec, type, ends_at) VALUES ('s', '@daily', 'x', now() - interval '1 h')`)
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 2000, time.Now().Year())
		run := func(line string) string {
			got := s.ask(t, "", line)
			require.Equal(t, exit.OK, got.code, "%s: %s", line, got.err)
			return got.out
		}
		run("job insert --type late --run-at 1h")
		run("job insert --type late --run-at 1h --unique-key u")
		require.Contains(t, run("job why 3"), ", in 59m59.")
		require.NotContains(t, run("job list --older-than 2h"), "new")
		require.NotContains(t, run("job list --newer-than 2h"), "old")
		require.Contains(t, run("schedule show s"), "ended")
		require.Contains(t, run("schedule list"), "ended")
		require.Empty(t, run("schedule next s -o jsonl"))
		run("job cancel --older-than 2h --count 1")
	})
	require.Equal(t, []string{"late t", "late t", "new f", "old f"}, query(t, s.url,
		`SELECT concat_ws(' ', type, run_at BETWEEN created_at + interval '59 min' AND created_at + interval '61 min')
			FROM dispatcherd.jobs ORDER BY type`))
	require.Equal(t, []string{"old"}, query(t, s.url, `SELECT type::text FROM dispatcherd.jobs WHERE status = 'cancelled'`))
}
