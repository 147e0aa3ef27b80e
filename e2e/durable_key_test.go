package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
)

// A dispatcher is killed with kill -9 while its caller waits. Repetitions with the same key,
// through another dispatcher and through the restarted one, get the result of the same row,
// during the execution and afterwards.
func TestKeyOfADurableRequestSurvivesItsDispatcher(t *testing.T) {
	w := newWorld(t)
	p := newPair(w)
	const body = `{"type":"pdf","durable":true,"timeout":60,"payload":{"do":"gate"}}`
	call := func(c *caller) <-chan response {
		got := make(chan response, 1)
		go func() { got <- c.request(body, "Idempotency-Key", "k") }()
		return got
	}
	lost := make(chan error, 1)
	here := callerOn(t, p.here)
	go func() {
		_, err := here.send(t.Context(), http.MethodPost, "/v1/requests", body, "Idempotency-Key", "k")
		lost <- err
	}()
	running := w.seen.await(t, "the first attempt", func(s sighting) bool { return s.What == "start" })
	p.caller.kill()
	require.Error(t, <-lost)
	there := callerOn(t, p.there)
	second := call(there)
	p.caller = p.serve(p.here)
	third := call(callerOn(t, p.here))
	reused := there.request(`{"type":"pdf","durable":true}`, "Idempotency-Key", "k")
	require.Equal(t, problem.KeyReused.Name, reused.problem(t).Type[len("urn:dispatcherd:problem:"):])
	w.seen.open(t, running)
	want := <-second
	require.Equal(t, http.StatusOK, want.StatusCode, want.body)
	require.Equal(t, want.body, (<-third).body)
	p.caller.kill()
	p.caller = p.serve(p.here)
	again := <-call(callerOn(t, p.here))
	require.Equal(t, want.body, again.body, "the row has ended")
	require.Equal(t, want.Header.Get("Dispatcherd-Job"), again.Header.Get("Dispatcherd-Job"))
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	require.Len(t, w.seen.ofJobs("start")[running.Job], 1)
}
