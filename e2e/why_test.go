package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// Requests in memory are explained like rows until they end.
func TestWhyExplainsARequestInMemory(t *testing.T) {
	w := newWorld(t)
	h, callee := w.startCallee(1)
	c := h.caller()
	var calls sync.WaitGroup
	for n := range 2 { // one request runs, one waits
		calls.Go(func() { c.request(`{"type":"pdf","payload":{"do":"gate"}}`) })
		eventually(t, func() bool { return h.gauges().InHand == n+1 }, func() string { return "a running request" })
	}
	explained := func(path string) (why httpapi.Why) {
		got := c.ask(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, got.StatusCode, got.body)
		require.NoError(t, json.Unmarshal([]byte(got.body), &why))
		return why
	}
	running, waiting := explained("/v1/jobs/-1/why"), explained("/v1/jobs/-2/why")
	require.Equal(t, []string{"Running"}, running.Reasons)
	require.Equal(t, dispatcherd.Running, running.Status)
	require.Equal(t, "on_demand", running.Mode)
	require.EqualValues(t, h.slots()[0].ID, running.Slot)
	require.Equal(t, []string{"CapacityBusy"}, waiting.Reasons)
	require.Equal(t, dispatcherd.Pending, waiting.Status)
	require.Equal(t, 1, waiting.Rank)
	require.EqualValues(t, -2, waiting.Job)
	for _, unknown := range []string{"-3", "0", "x"} {
		require.Equal(t, http.StatusNotFound, c.ask(http.MethodGet, "/v1/jobs/"+unknown+"/why", "").StatusCode)
	}
	for _, line := range []string{"job why -2 --api-socket " + h.cfg.APISocket, "job why --api-socket " + h.cfg.APISocket + " -- -2"} {
		shown := onDatabase(t, w.dsn, "", line)
		require.Equal(t, exit.OK, shown.code, shown.err)
		require.Contains(t, shown.out, "-2 pdf, priority 0, pending")
		require.Contains(t, shown.out, "busy with job -1 (pdf)")
	}
	require.Equal(t, exit.NotFound, onDatabase(t, w.dsn, "", "job why -3", "--api-socket", h.cfg.APISocket).code)
	for _, no := range []string{"0", "x", "-x"} {
		require.Equal(t, exit.Usage, onDatabase(t, w.dsn, "", "job why "+no, "--api-socket", h.cfg.APISocket).code, no)
	}
	close(callee.open)
	calls.Wait()
	answered := explained("/v1/jobs/-1/why")
	require.Equal(t, []string{"Final"}, answered.Reasons)
	require.Equal(t, dispatcherd.Done, answered.Status)
	require.Equal(t, "done", answered.End.Outcome)
	require.Equal(t, []string{"CapacityBusy"}, explained("/v1/jobs/-2/why").Placement.WaitedFor)
}

func TestWhyExplainsThePlacementOfAJobThatHasEnded(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	jobs := []dispatcherd.JobID{w.insertNew(claim.New{Type: "x", Priority: 5}, work{}), w.insertNew(claim.New{Type: "x", Priority: 1}, work{})}
	w.worker("worker-of-renown", h.cfg.WorkerSocket, scriptSlots{N: 1, Types: []string{"x"}})
	for _, id := range jobs {
		w.await(id, dispatcherd.Done)
	}
	explained := func(id dispatcherd.JobID) (why httpapi.Why) {
		got := h.caller().ask(http.MethodGet, fmt.Sprintf("/v1/jobs/%d/why", id), "")
		require.Equal(t, http.StatusOK, got.StatusCode, got.body)
		require.NoError(t, json.Unmarshal([]byte(got.body), &why))
		return why
	}
	first := explained(jobs[0])
	require.Equal(t, []string{"Final"}, first.Reasons)
	require.Equal(t, "worker-of-renown", first.Placement.Worker)
	require.InDelta(t, 5*1024, first.Placement.Score.Base, 1)
	require.InDelta(t, 500, first.Placement.Score.Rarity, 1)
	require.NotNil(t, first.Placement.RunnerUp)
	require.EqualValues(t, jobs[1], first.Placement.RunnerUp.Job)
	require.Equal(t, "done", first.End.Outcome)
	require.Empty(t, first.DecisionLog)
	require.Contains(t, explained(jobs[1]).Placement.WaitedFor, "CapacityBusy")
	shown := onDatabase(t, w.dsn, "", fmt.Sprintf("job why %d --api-socket %s", jobs[0], h.cfg.APISocket))
	require.Equal(t, exit.OK, shown.code, shown.err)
	require.Contains(t, shown.out, "worker-of-renown")
	require.Contains(t, shown.out, fmt.Sprintf("runner-up: job %d x, score ", jobs[1]))
}

func TestWhySaysThatAnEntryIsOverwritten(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.DecisionLog = 2
	h := w.start(cfg)
	first := w.insert("x", work{Do: "gate"})
	w.exec(`UPDATE dispatcherd.jobs SET run_at = run_at - interval '2 s'`) // the row keeps the placement after a wait of a second
	callee := serveCalls(t, cfg.WorkerSocket, 2, "x")
	h.awaitState("busy", first)
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.Contains(t, w.why(h, first), "older entries are overwritten")
	close(callee.open)
	w.await(first, dispatcherd.Done)
	require.Regexp(t, `placed +\S+ on slot \d+ of callee\n`, w.why(h, first), "the row says it")
	h.awaitSlots(2)
}

func TestWhyWithoutADecisionLogSaysSo(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.DecisionLog = 0
	h := w.start(cfg)
	callee := serveCalls(t, cfg.WorkerSocket, 1, "x")
	id := w.insert("x", work{Do: "gate"})
	h.awaitState("busy", id)
	require.Contains(t, w.why(h, id), "this dispatcher keeps no decision log (--decision-log 0)")
	require.NotContains(t, w.why(h, w.insert("x", work{})), "decision log", "no placement of a pending job is expected")
	close(callee.open)
	w.await(id, dispatcherd.Done)
	h.awaitSlots(1)
}

// The log holds attempt 1, but attempt 2 ran on another dispatcher.
func TestWhyOmitsThePlacementOfAnEarlierAttempt(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	serveCalls(t, h.cfg.WorkerSocket, 1, "x")
	id := w.insert("x", work{})
	w.await(id, dispatcherd.Done)
	h.awaitSlots(1)
	require.Contains(t, w.why(h, id), "of callee, which supports 1 type")
	w.exec("UPDATE dispatcherd.jobs SET attempt = 2, dispatcher = 77, placement = NULL WHERE id = $1", id)
	text := w.why(h, id)
	require.Contains(t, text, "dispatcher 77 placed it")
	require.NotContains(t, text, "callee")
	require.NotRegexp(t, `(?m)^ended `, text)
}

func TestWhySaysWhenAScheduledJobBecomesDue(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 1, Types: []string{"x"}})
	w.await(w.insert("x", work{}), dispatcherd.Done) // a fetch has read the clock of the database
	due := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	id := w.insertNew(claim.New{Type: "x", RunAt: due}, work{})
	shown := onDatabase(t, w.dsn, "", fmt.Sprintf("job why %d --api-socket %s", id, h.cfg.APISocket))
	require.Equal(t, exit.OK, shown.code, shown.err)
	require.Contains(t, shown.out, "Scheduled")
	require.Regexp(t, `run_at +`+due.Format("2006-01-02T15:04:05.000Z"), shown.out)
}

func TestWhySaysWhichJobsWereNotPlacedHere(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	shown := func(id dispatcherd.JobID) string {
		got := onDatabase(t, w.dsn, "", fmt.Sprintf("job why %d --api-socket %s", id, h.cfg.APISocket))
		require.Equal(t, exit.OK, got.code, got.err)
		return got.out
	}
	const never = "it was never placed by this dispatcher"
	cancelled := w.insert("x", work{})
	_, err := w.jobs.Cancel(t.Context(), cancelled)
	require.NoError(t, err)
	require.Contains(t, shown(cancelled), never)
	refused := h.caller().ask(http.MethodPost, "/v1/requests", `{"type":"y","wait_for_worker":0.01}`)
	require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode, refused.body)
	require.Contains(t, shown(-1), never)

	w.exec("UPDATE dispatcherd.jobs SET attempt = 1, dispatcher = 77 WHERE id = $1", cancelled)
	require.Contains(t, shown(cancelled), "dispatcher 77 placed it")
	w.exec("UPDATE dispatcherd.jobs SET dispatcher = NULL WHERE id = $1", cancelled)
	require.Contains(t, shown(cancelled), "an earlier process, or another dispatcher, placed it")
}
