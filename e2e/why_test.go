package e2e

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Requests in memory are explained like rows, for as long as they are there.
func TestARequestInMemoryIsExplained(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	callee := serveCalls(t, h.cfg.WorkerSocket, 1, "pdf")
	h.awaitSlots(1)
	c := h.caller()
	var calls sync.WaitGroup
	for n := range 2 { // one runs, one waits
		calls.Go(func() { c.request(`{"type":"pdf","payload":{"do":"gate"}}`) })
		eventually(t, func() bool { return h.gauges().InHand == n+1 }, func() string { return "a request in hand" })
	}
	explained := func(path string) (why api.Why) {
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
	eventually(t, func() bool { return c.ask(http.MethodGet, "/v1/jobs/-1/why", "").StatusCode == http.StatusNotFound },
		func() string { return "an answered request that is forgotten" })
}
