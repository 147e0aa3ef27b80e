package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
)

// A job that exceeds its timeout fails and is retried, whether the worker or the dispatcher
// notices the timeout first.
func TestTimeoutIsAFailureAndRetried(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	id := w.insertNew(claim.New{Type: "x", MaxAttempts: 3, Timeout: 100 * time.Millisecond}, work{Do: "gate"})
	job := w.await(id, dispatcherd.Failed)
	require.EqualValues(t, 3, job.Attempt, "errors: %s", job.Errors)
	require.Equal(t, 3, job.Failures)
	h.awaitSlots(1)
}

// A dispatcher reads a job, and another dispatcher claims it. The cursor of the first one is
// then past the job. If the job becomes pending again it must be found without polling.
func TestRetriedJobIsFoundPastTheCursorOfAnotherDispatcher(t *testing.T) {
	w := newWorld(t)
	cfgA := withoutPolling(w.config("a"))
	cfgA.Grace = time.Millisecond
	a, b := w.start(cfgA), w.start(withoutPolling(w.config("b")))
	there := func(h *host) {
		w.worker("on-"+h.cfg.Name, h.cfg.WorkerSocket, oneSlot("x"))
		eventually(t, func() bool { return h.gauges().Slots == 1 }, func() string { return "a slot" })
	}
	there(b)
	blocked := w.seen.start(t, w.insert("x", work{Do: "gate"}), 1)
	there(a)
	id := w.insert("x", work{Do: "gate"}) // both dispatchers read it; a claims it
	w.seen.start(t, id, 1)
	stopped := make(chan error, 1)
	go func() { stopped <- a.stop() }()
	w.seen.open(t, blocked) // b tries to claim it and loses
	require.NoError(t, <-stopped)
	w.seen.open(t, w.seen.start(t, id, 2))
	w.await(id, dispatcherd.Done)
	b.awaitSlots(1)
}

// A transaction commits late, while polls are practically disabled.
func TestLateCommitIsFoundWithoutPolling(t *testing.T) {
	w := newWorld(t)
	h := w.start(withoutPolling(w.config("d")))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	early, err := claim.Jobs{DB: tx}.Insert(t.Context(), claim.New{Type: "x"})
	require.NoError(t, err)
	w.oneByOne(3)
	require.NoError(t, tx.Commit(t.Context()))
	w.await(early, dispatcherd.Done)
}
