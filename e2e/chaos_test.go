package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
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
	type outcome struct {
		answer ondemand.Answer
		err    error
	}
	answered := make(chan outcome, 1)
	go func() {
		a, err := h.Do(ctx, ondemand.Request{Type: "x", Payload: []byte(`{"do":"gate"}`)})
		answered <- outcome{a, err}
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
	require.Equal(t, ondemand.Done, got.answer.Kind, got.answer.Reason)
	require.JSONEq(t, `{"by":"second","attempt":2}`, string(got.answer.Payload))
	h.awaitSlots(1)
}
