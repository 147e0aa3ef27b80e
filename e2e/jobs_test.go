package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// oneSlot is a slot for one type.
func oneSlot(types ...string) scriptSlots { return scriptSlots{N: 1, Types: types} }

func TestJobsOfInsertCopyAndCommandLineReachAWorker(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"pdf", "excel"}})
	h.awaitSlots(2)

	w.exec(`INSERT INTO dispatcherd.jobs (type, payload) VALUES ('pdf', '{"result": {"n": 1}}'), ('excel', '{"result": 2}')`)
	_, err := w.db.CopyFrom(t.Context(), pgx.Identifier{"dispatcherd", "jobs"}, []string{"type", "payload"},
		pgx.CopyFromRows([][]any{{"pdf", map[string]any{"result": 3}}, {"excel", map[string]any{}}}))
	require.NoError(t, err)
	one := h.onAPI("", "job", "insert", "--type", "pdf", "--payload", `{"result":"five"}`)
	require.Equal(t, exit.OK, one.code, one.err)
	stream := h.onAPI(`{"type":"pdf","payload":{"result":6}}`+"\n"+`{"type":"excel","payload":{"result":7}}`+"\n", "job", "insert", "-")
	require.Equal(t, exit.OK, stream.code, stream.err)
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: 7})

	job := w.get(1)
	require.JSONEq(t, `{"n": 1}`, string(job.Result))
	require.EqualValues(t, 0, job.Priority)
	require.Equal(t, contract.DefaultMaxAttempts, job.MaxAttempts)
	require.EqualValues(t, 1, job.Attempt)
	require.Zero(t, job.Failures+job.Crashes)
	require.WithinRange(t, job.RunAt, job.CreatedAt, *job.StartedAt, "run_at is now unless it is given")
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE result::jsonb = '"five"' AND status = 'done'`))
	h.awaitSlots(2)
}

func TestFutureJobDoesNotRunBeforeItsTime(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	var due time.Time
	require.NoError(t, w.db.QueryRow(t.Context(), `SELECT now() + interval '700 ms'`).Scan(&due))
	later := w.insertNew(claim.New{Type: "x", RunAt: due}, work{})
	now := w.insert("x", work{})
	w.await(now, dispatcherd.Done)
	require.Zero(
		t,
		w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE id = $1 AND run_at > clock_timestamp() AND status <> 'pending'`, int64(later)),
	)
	job := w.await(later, dispatcherd.Done)
	require.False(t, job.StartedAt.Before(due), "started at %v, due at %v", job.StartedAt, due)
}

// history is the column errors.
func history(t *testing.T, job contract.Job) (entries []struct{ Outcome, Error string }) {
	t.Helper()
	require.NoError(t, json.Unmarshal(job.Errors, &entries), "%s", job.Errors)
	return entries
}

func TestFailureIsRetriedWithBackoffAndRecorded(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 3, Types: []string{"x"}})
	h.awaitSlots(3)
	heals := w.insert("x", work{Do: "fail", Times: 2, Error: "printer on fire"})
	never := w.insertNew(claim.New{Type: "x", MaxAttempts: 2}, work{Do: "fail", Times: 99, Error: "no paper"})
	final := w.insert("x", work{Do: "permanent", Error: "no such page"})

	job := w.await(heals, dispatcherd.Done)
	require.EqualValues(t, 3, job.Attempt)
	require.Equal(t, 2, job.Failures)
	require.Len(t, history(t, job), 2)
	require.Equal(t, "printer on fire", history(t, job)[0].Error)
	starts := w.seen.ofJobs("start")[heals]
	require.Len(t, starts, 3)
	require.GreaterOrEqual(t, starts[1].At-starts[0].At, int64(9*time.Millisecond), "at least half of the base")

	job = w.await(never, dispatcherd.Failed)
	require.Equal(t, 2, job.Failures)
	require.Equal(t, "no paper", history(t, job)[1].Error)
	job = w.await(final, dispatcherd.Failed)
	require.EqualValues(t, 1, job.Attempt)
	var text string
	require.NoError(t, w.db.QueryRow(t.Context(), `SELECT errors->0->>'error' FROM dispatcherd.jobs WHERE id = $1`, int64(final)).Scan(&text))
	require.Equal(t, "no such page", text)
	h.awaitSlots(3)
}

func TestCancelEndsPendingAndRunningJobs(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	running := w.insert("x", work{Do: "gate"})
	w.seen.start(t, running, 1)
	pending := w.insert("x", work{})
	for _, id := range []dispatcherd.JobID{pending, running} {
		got := h.onAPI("", "job", "cancel", fmt.Sprint(id))
		require.Equal(t, exit.OK, got.code, got.err)
		w.await(id, dispatcherd.Cancelled)
	}
	require.EqualValues(t, 0, w.get(pending).Attempt)
	h.awaitSlots(1)
	id := w.insert("x", work{})
	w.await(id, dispatcherd.Done)
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'cancel'`) == 0 },
		func() string { return "no remaining request to cancel" })
	require.Empty(t, w.seen.ofJobs("start")[pending])
}

func TestCrashingJobIsQuarantinedWithoutUsingAttempts(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	id := w.insertNew(claim.New{Type: "x", MaxAttempts: 1}, work{Do: "die"})
	for attempt := 1; attempt <= h.cfg.Core.Limits.Crashes; attempt++ {
		c := w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
		c.ends(t, exit.Internal)
	}
	job := w.await(id, dispatcherd.Failed)
	require.Zero(t, job.Failures)
	require.Equal(t, h.cfg.Core.Limits.Crashes, job.Crashes)
	require.Contains(t, string(job.Errors), "quarantined")
	h.awaitSlots(0)
}

// Each of the two ways in which the daemon finds new jobs is sufficient on its own.
func TestJobsAreFoundByPollingAlone(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Listen = false
	cfg.Core.Poll, cfg.Core.PollUnsubscribed = 50*time.Millisecond, 20*time.Millisecond
	h := w.start(cfg)
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 3, Types: []string{"x", "y"}})
	h.awaitSlots(3)
	w.insertOneByOne(10)
	require.NotContains(t, h.log.text(), "notifications arrive")
}

func TestJobsAreFoundByNotificationsAlone(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Core.Poll, cfg.Core.PollUnsubscribed = time.Hour, time.Hour
	h := w.start(cfg)
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 3, Types: []string{"x", "y"}})
	h.awaitSlots(3)
	w.insertOneByOne(100)
	// Retried and future jobs are found without a notification.
	id := w.insert("x", work{Do: "fail", Times: 3, Error: "again"})
	w.await(id, dispatcherd.Done)
	var due time.Time
	require.NoError(t, w.db.QueryRow(t.Context(), `SELECT now() + interval '300 ms'`).Scan(&due))
	w.await(w.insertNew(claim.New{Type: "y", RunAt: due}, work{}), dispatcherd.Done)
}

// insertOneByOne inserts the next job when the last one is done. The daemon is idle in between,
// so it must notice each job separately.
func (w *world) insertOneByOne(rounds int) {
	w.t.Helper()
	var last contract.Job
	for i := range rounds {
		id := w.insert([]string{"x", "y"}[i%2], work{})
		last = w.await(id, dispatcherd.Done)
	}
	require.EqualValues(w.t, 1, last.Attempt)
}
