package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

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
	shown := h.onAPI("", "job", "why", fmt.Sprint(jobs[0]))
	require.Equal(t, exit.OK, shown.code, shown.err)
	require.Contains(t, shown.out, "worker-of-renown")
	require.Contains(t, shown.out, fmt.Sprintf("runner-up: job %d x, score ", jobs[1]))
}

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
	require.Equal(t, h.slots()[0].Slot, running.Slot)
	require.Equal(t, []string{"CapacityBusy"}, waiting.Reasons)
	require.Equal(t, dispatcherd.Pending, waiting.Status)
	require.Equal(t, 1, waiting.Rank)
	require.EqualValues(t, -2, waiting.Job)
	for _, unknown := range []string{"-3", "0", "x"} {
		require.Equal(t, http.StatusNotFound, c.ask(http.MethodGet, "/v1/jobs/"+unknown+"/why", "").StatusCode)
	}
	for _, line := range []string{"job why -2", "job why -o table -- -2"} {
		shown := h.onAPI("", strings.Fields(line)...)
		require.Equal(t, exit.OK, shown.code, shown.err)
		require.Contains(t, shown.out, "-2 pdf, priority 0, pending")
		require.Contains(t, shown.out, "busy with job -1 (pdf)")
	}
	require.Equal(t, exit.NotFound, h.onAPI("", "job", "why", "-3").code)
	for _, no := range []string{"0", "x", "-x"} {
		require.Equal(t, exit.Usage, h.onAPI("", "job", "why", no).code, no)
	}
	close(callee.open)
	calls.Wait()
	answered := explained("/v1/jobs/-1/why")
	require.Equal(t, []string{"Final"}, answered.Reasons)
	require.Equal(t, dispatcherd.Done, answered.Status)
	require.Equal(t, "done", answered.End.Outcome)
	require.Equal(t, []string{"CapacityBusy"}, explained("/v1/jobs/-2/why").Placement.WaitedFor)
}
