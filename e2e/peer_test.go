package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The tests of this file reproduce faults of other job queues; see docs/explanation/reliability-peers.md.

// A dispatcher without LISTEN cancels running jobs nevertheless.
func TestPeer_B07_CancelArrivesWithoutNotifications(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Listen = false
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	id := w.insert("x", work{Do: "gate"})
	w.seen.start(t, id, 1)
	status, err := claim.Jobs{DB: w.db}.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Running, status)
	w.await(id, dispatcherd.Cancelled)
	h.awaitSlots(1)
}

// The jobs of a lost dispatcher are released even if every slot is busy for ever, because the
// release is not itself a job.
func TestPeer_B15_RecoveryNeedsNoSlot(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	w.seen.start(t, w.insert("x", work{Do: "gate"}), 1)
	lost, err := claim.Open(t.Context(), claimfake.Config(w.dsn, "lost"))
	require.NoError(t, err)
	defer lost.Close()
	run, err := lost.Join(t.Context())
	require.NoError(t, err)
	id := w.insert("y", work{})
	won := lost.Claim(t.Context(), contract.ClaimRequest{Token: contract.Token{1}, IDs: []dispatcherd.JobID{id}})
	require.Len(t, won.Won, 1)
	w.exec(`UPDATE dispatcherd.dispatchers SET lease = '1 ms' WHERE id = $1`, run)
	job := w.await(id, dispatcherd.Pending)
	require.Equal(t, 1, job.Crashes)
	require.Zero(t, h.gauges().Free)
}
