package e2e

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/client"
)

// The kill -9 of a worker does not fail an on-demand request. The request runs on another
// worker while its caller waits.
func TestRequestSurvivesTheDeathOfItsWorker(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	first := w.worker("first", h.cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	defer cancel()
	caller := h.framesClient()
	type outcome struct {
		result json.RawMessage
		err    error
	}
	answered := make(chan outcome, 1)
	go func() {
		result, err := caller.Do(ctx, client.Request{Type: "x", Payload: work{Do: "gate"}})
		answered <- outcome{result, err}
	}()
	w.seen.await(t, "the request start", func(s sighting) bool { return s.What == "start" })
	w.worker("second", h.cfg.WorkerSocket, oneSlot("x"))
	eventually(t, func() bool { return h.gauges().Free == 1 }, func() string { return "a second worker" })
	first.kill()
	w.seen.open(
		t,
		w.seen.await(t, "the request start on the second worker", func(s sighting) bool { return s.What == "start" && s.Worker == "second" }),
	)
	got := <-answered
	require.NoError(t, got.err)
	require.JSONEq(t, `{"by":"second","attempt":2}`, string(got.result))
	h.awaitSlots(1)
}
