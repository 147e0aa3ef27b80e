package flowstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
)

// asked says whether a request to cancel a job exists.
func (w *world) asked(id int64) bool {
	w.t.Helper()
	return get[bool](w, `SELECT EXISTS (SELECT FROM dispatcherd.operations WHERE kind = 'cancel' AND target = $1)`, id)
}

// A member of a cancelled batch runs and has children. Another transaction has locked the row of the children.
// After its end, the next settlement cancels the children, although the member does not end.
func TestCancellationReachesChildrenThatWereLocked(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	member := w.members(batch, 1)[0]
	won := w.claim(member)
	child, running := w.spawn(won[0]), w.spawn(won[0])
	w.claim(running)
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `SELECT FROM dispatcherd.batches WHERE id = $1 FOR NO KEY UPDATE`, member)
	require.NoError(t, err)
	w.cancelTree(batch)
	w.countEnds()
	require.True(t, w.asked(member))
	require.Equal(t, "pending", w.status(child), "it is locked")
	require.NoError(t, tx.Rollback(t.Context()))
	w.countEnds()
	require.Equal(t, "running", w.status(member))
	require.Equal(t, "cancelled", w.status(child))
	require.True(t, w.asked(running))
}

// As before, for a job that is no member: it has got a request to cancel, and its children were locked at that time.
func TestCancellationOfAParentReachesChildrenThatWereLocked(t *testing.T) {
	w := newWorld(t)
	parent := w.insert()
	won := w.claim(parent)
	child := w.spawn(won[0])
	middle := w.claim(child)
	last := w.spawn(middle[0])
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `SELECT FROM dispatcherd.batches WHERE id = $1 FOR NO KEY UPDATE`, child)
	require.NoError(t, err)
	w.cancelTree(parent)
	w.countEnds()
	require.NoError(t, tx.Rollback(t.Context()))
	w.countEnds()
	require.True(t, w.asked(parent))
	require.True(t, w.asked(child))
	require.Equal(t, "cancelled", w.status(last))
}

// A waiting job is released while the cancellation waits for its row. The row that the cancellation has found is gone then, and the job has
// another one.
func TestCancellationReachesAJobThatIsReleasedMeanwhile(t *testing.T) {
	w := newWorld(t)
	job := w.after(w.insert())
	tx := w.begin()
	_, err := tx.Exec(t.Context(), releaseSQL, []int64{job}, 0, nil)
	require.NoError(t, err)
	cancelled := make(chan dispatcherd.Status, 1)
	go func() {
		status, _ := claim.Jobs{DB: w.db}.Cancel(t.Context(), dispatcherd.JobID(job))
		cancelled <- status
	}()
	w.awaitLock()
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, dispatcherd.Cancelled, <-cancelled)
	require.Equal(t, "cancelled", w.status(job))
}

// The nodes of a cancelled flow were locked. They are cancelled later, and name the canceller of the flow.
func TestLockedNodeOfACancelledFlowIsCancelledLater(t *testing.T) {
	w := newWorld(t)
	flow, n := w.flow(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}]}`)
	won := w.claim(n["a"])
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `SELECT FROM dispatcherd.jobs_waiting FOR UPDATE`)
	require.NoError(t, err)
	w.cancelTree(flow)
	w.finish(won, contract.Succeeded, "")
	require.NoError(t, tx.Commit(t.Context()))
	w.countEnds()
	require.Equal(t, "cancelled", w.status(n["b"]))
	require.True(t, get[bool](w, `SELECT j.cancelled_by = b.cancelled_by FROM dispatcherd.jobs j, dispatcherd.batches b
		WHERE j.id = $1 AND b.id = $2`, n["b"], flow))
}

// An operator cancels the callback of a flow that was set aside, and repairs the flow. One step reads both messages.
func TestCancellationOfACallbackBesideARepairCancelsTheFlow(t *testing.T) {
	w := newWorld(t)
	flow, n := w.flow(`{"callback": {"type": "c"}, "nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}]}`)
	w.countEnds()
	_, err := claim.Jobs{DB: w.db}.Cancel(t.Context(), dispatcherd.JobID(flow))
	require.NoError(t, err)
	require.NoError(t, joins.Joins{DB: w.db}.Repair(t.Context(), dispatcherd.JobID(flow)))
	w.countEnds()
	require.Equal(t, "cancelled", w.status(n["a"]))
	require.Equal(t, "cancelled", w.status(n["b"]))
	require.True(t, w.batch(flow).Ended)
}

// A child is claimed while its parent is cancelled: its claim is under way when the pending children are
// cancelled, and commits later. It is asked to cancel, too.
func TestCancellationReachesAChildThatIsClaimedMeanwhile(t *testing.T) {
	w := newWorld(t)
	parent := w.insert()
	won := w.claim(parent)
	runs, claimed := w.spawn(won[0]), w.spawn(won[0])
	w.claim(runs)
	claim := w.begin()
	_, err := claim.Exec(
		t.Context(),
		`UPDATE dispatcherd.jobs_live SET status = 'running', attempt = 1, dispatcher = $1, token = 5, started_at = now() WHERE id = $2`,
		w.store.Dispatcher(),
		claimed,
	)
	require.NoError(t, err)
	w.cancelTree(parent)
	w.countEnds()
	require.True(t, w.asked(runs))
	require.NoError(t, claim.Commit(t.Context()))
	w.countEnds()
	require.True(t, w.asked(claimed))
}
