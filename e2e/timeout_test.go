package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
)

// A worker ignores the timeout of a type. The job fails, another job of the same worker is
// interrupted, and both types run again afterwards.
func TestWorkerThatIgnoresATimeoutLosesItsSession(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Core.Timeouts = map[string]time.Duration{"x": 200 * time.Millisecond}
	cfg.Core.CancelGrace = 200 * time.Millisecond
	h := w.start(cfg)
	ignoring := w.worker("ignoring", cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x", "y"}})
	neighbour := w.insert("y", work{Do: "gate"})
	w.seen.start(t, neighbour, 1)
	stuck := w.insertNew(claim.New{Type: "x", MaxAttempts: 1}, work{Do: "stubborn"})
	w.seen.start(t, stuck, 1)
	job := w.await(stuck, dispatcherd.Failed)
	require.Equal(t, 1, job.Failures)
	require.Contains(t, string(job.Errors), "timeout")
	w.seen.open(t, w.seen.start(t, neighbour, 2)) // the same worker executes it in its next session
	job = w.await(neighbour, dispatcherd.Done)
	require.Zero(t, job.Failures+job.Crashes)
	require.Contains(t, h.log.text(), "cancel_ignored")
	ignoring.kill()
	h.awaitSlots(0)
}
