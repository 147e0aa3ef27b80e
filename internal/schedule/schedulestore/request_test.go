package schedulestore

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// An error of a tick on request says whether the schedule is paused or gone, and what to do.
func TestRefusedTickSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.cron("s", nil)
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, w.Pause(t.Context(), "s"))
	_, err := w.Run(t.Context(), "s", "k", false)
	require.EqualError(t, err, `schedule "s": it is paused: resume it first, or run it with --force (over HTTP: force=true)`)
	_, err = w.Backfill(t.Context(), "s", at, at, "")
	require.EqualError(t, err, `schedule "s": it is paused: resume it first`)
	require.NoError(t, w.Resume(t.Context(), "s"))
	require.EqualError(t, w.noTick(t.Context(), "s", contract.TickChanged, ""),
		`schedule "s": it was paused, edited or deleted at the same time: try again`)
	require.NoError(t, w.Remove(t.Context(), "s"))
	require.ErrorIs(t, w.noTick(t.Context(), "s", contract.TickChanged, ""), ErrNotFound)
}

// A second call with a key returns what the first one did, also if that was no run.
func TestSecondRunWithAKeyReturnsTheEarlierOutcome(t *testing.T) {
	w := newWorld(t)
	w.cron("s", nil)
	first, err := w.Run(t.Context(), "s", "1", false)
	require.NoError(t, err)
	again, err := w.Run(t.Context(), "s", "1", true)
	require.NoError(t, err)
	require.Equal(t, contract.MadeTick{Outcome: contract.TickExists, Job: first.Job, Earlier: contract.TickRun}, again)
	_, err = w.Run(t.Context(), "s", "2", false)
	require.NoError(t, err)
	again, err = w.Run(t.Context(), "s", "2", true)
	require.NoError(t, err)
	require.Equal(t, contract.MadeTick{Outcome: contract.TickExists, Earlier: contract.TickSkipped}, again)
}

// A count of a backfill makes no tick.
func TestCountOfABackfillMakesNoTick(t *testing.T) {
	w := newWorld(t)
	w.cron("s", func(s *contract.Schedule) { s.Spec = "0 * * * *" })
	to := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	count := func(from time.Time) map[string]int {
		counts, err := w.CountBackfill(t.Context(), "s", from, to)
		require.NoError(t, err)
		return counts
	}
	require.Equal(t, map[string]int{"new": 6}, count(to.Add(-5*time.Hour)))
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.ticks`))
	_, err := w.Backfill(t.Context(), "s", to.Add(-5*time.Hour), to, "")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"exists": 6, "new": 2}, count(to.Add(-7*time.Hour)))
	require.Equal(t, map[string]int{"exists": 1}, count(to))
	_, err = w.CountBackfill(t.Context(), "none", to, to)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = w.CountBackfill(t.Context(), "s", to, time.Now().Add(time.Hour))
	require.ErrorIs(t, err, ErrInvalid)
}

// The statement of docs/how-to/schedules.md drops queued ticks: they never run, and later ticks do.
func TestQueuedTicksCanBeDropped(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	to := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	counts, err := w.Backfill(t.Context(), "s", to.Add(-5*time.Minute), to, "")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"run": 1, "queued": 5}, counts)
	text, err := os.ReadFile("../../../docs/how-to/schedules.md")
	require.NoError(t, err)
	statement := regexp.MustCompile(`UPDATE dispatcherd\.ticks t [^;]+`).FindString(string(text))
	require.Contains(t, statement, "'nightly'")
	w.exec(strings.Replace(statement, "nightly", "s", 1))
	w.end()
	started, err := w.controller.StartQueued(t.Context(), []int64{s.ID})
	require.NoError(t, err)
	require.Len(t, started, 1)
	require.Zero(t, started[0].Job)
	require.False(t, started[0].Waiting)
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 1)))
}
