package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// A job is cancelled while no dispatcher runs, so no dispatcher receives the notification. The
// dispatcher that adopts the job sends the cancel to the worker at once, without waiting for
// its next heartbeat. In this test the next heartbeat is much later.
func TestCancelWithoutDispatcherIsSentAtAdoption(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Grace = 20 * time.Millisecond
	cfg.Heartbeat, cfg.Lease = time.Hour, 3*time.Hour
	cfg.Workers.Resume, cfg.Core.Resume = longWait, longWait
	first := w.start(cfg)
	callee := serveCalls(t, cfg.WorkerSocket, 1, "x")
	first.awaitSlots(1)
	id := w.insert("x", work{Do: "gate"})
	first.awaitState("busy", id)
	require.NoError(t, first.stop())
	status, err := w.jobs.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Running, status)

	second := w.start(cfg)
	require.Equal(t, id, receive(t, callee.cancelled, "the cancel of the worker's job"))
	require.EqualValues(t, 1, w.await(id, dispatcherd.Cancelled).Attempt)
	second.awaitSlots(1)
}
