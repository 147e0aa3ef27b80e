package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
)

// The job's own limit ends an attempt, which is a failure like any other: it is
// tried again, whoever of worker and dispatcher notices first.
func TestATimeoutIsAFailureThatIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	id := w.insertNew(claim.New{Type: "x", MaxAttempts: 3, Timeout: 100 * time.Millisecond}, work{Do: "gate"})
	job := w.await(id, dispatcherd.Failed)
	require.EqualValues(t, 3, job.Attempt, "errors: %s", job.Errors)
	require.Equal(t, 3, job.Failures)
	h.awaitSlots(1)
}

// A dispatcher that had read a job before another one took it has its cursor
// behind it. When the job comes back it must still be found, without polling.
func TestAJobThatComesBackIsHeardOfElsewhere(t *testing.T) {
	w := newWorld(t)
	cfgA := hardOfPolling(w.config("a"))
	cfgA.Grace = time.Millisecond
	a, b := w.start(cfgA), w.start(hardOfPolling(w.config("b")))
	there := func(h *host) {
		w.worker("on-"+h.cfg.Name, h.cfg.WorkerSocket, oneSlot("x"))
		eventually(t, func() bool { return h.gauges().Slots == 1 }, func() string { return "a slot" })
	}
	there(b)
	blocked := w.seen.start(t, w.insert("x", work{Do: "gate"}), 1)
	there(a)
	id := w.insert("x", work{Do: "gate"}) // both read it, a takes it
	w.seen.start(t, id, 1)
	stopped := make(chan error, 1)
	go func() { stopped <- a.stop() }()
	w.seen.open(t, blocked) // b tries it, and loses
	require.NoError(t, <-stopped)
	w.seen.open(t, w.seen.start(t, id, 2))
	w.await(id, dispatcherd.Done)
	b.awaitSlots(1)
}

// A transaction that commits late, with polling as good as off.
func TestALateCommitIsHeardOf(t *testing.T) {
	w := newWorld(t)
	h := w.start(hardOfPolling(w.config("d")))
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
