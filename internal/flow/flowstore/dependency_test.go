package flowstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// insert inserts a job outside of batches and flows.
func (w *world) insert() int64 {
	w.t.Helper()
	return get[int64](w, `INSERT INTO dispatcherd.jobs (type, max_attempts) VALUES ('x', 1) RETURNING id`)
}

// after inserts a flow with one node that runs when jobs have ended in any way, and returns its id.
func (w *world) after(jobs ...int64) int64 {
	w.t.Helper()
	_, n := w.flow(
		fmt.Sprintf(`{"nodes": [{"name": "x", "type": "x", "run_when": "ended", "after": [%s]}]}`,
			strings.Join(strings.Fields(strings.Trim(fmt.Sprint(jobs), "[]")), ", ")),
	)
	return n["x"]
}

// left returns how many dependencies of a node have not ended, as its row counts them.
func (w *world) left(node int64) int {
	w.t.Helper()
	return get[int](w, `SELECT open FROM dispatcherd.nodes WHERE id = $1`, node)
}

// A job on which another flow depends has ended, and its end is recorded but not counted. A new flow depends on
// it, too. The end counts once for the new flow, although its record and its row both tell it.
func TestRecordedEndCountsOnceForANewFlow(t *testing.T) {
	w := newWorld(t)
	for name, job := range map[string]func() int64{
		"a dependency of another flow": func() int64 {
			id := w.insert()
			w.after(id)
			w.countEnds()
			return id
		},
		"a callback": func() int64 {
			id := w.open("ended")
			w.seal(id)
			w.countEnds()
			return id
		},
	} {
		for _, outcome := range []contract.Outcome{contract.Succeeded, contract.FailedFinal} {
			watched, v := job(), w.insert()
			w.end(outcome, watched)
			require.Equal(t, 1, get[int](w, `SELECT count(*) FROM dispatcherd.ends WHERE target = $1 AND jobs[1] = $1`, watched))
			x := w.after(watched, v)
			w.countEnds()
			w.countEnds()
			require.Equal(t, "waiting", w.status(x), name)
			require.Equal(t, 1, w.left(x), name)
			w.end(contract.Succeeded, v)
			w.countEnds()
			require.Equal(t, "pending", w.status(x), name)
			require.Zero(t, w.left(x))
		}
	}
}

// As before, but the job failed and runs again when the new flow is linked. The recorded end is that of its former run. The new flow waits
// for the next end.
func TestRecordedEndOfAFormerRunDoesNotCountForANewFlow(t *testing.T) {
	w := newWorld(t)
	job := w.insert()
	first := w.after(job, w.insert())
	w.countEnds()
	w.end(contract.FailedFinal, job)
	require.Equal(t, 1, w.retry(job))
	x := w.after(job)
	w.countEnds()
	w.countEnds()
	require.Equal(t, "waiting", w.status(x), "the job is pending")
	require.Equal(t, 1, w.left(x))
	w.end(contract.Succeeded, job)
	w.countEnds()
	require.Equal(t, "pending", w.status(x))
	require.Equal(t, "0 0", get[string](w, `SELECT concat_ws(' ', open, bad) FROM dispatcherd.nodes WHERE id = $1`, x))
	require.Equal(t, "1 0", get[string](w, `SELECT concat_ws(' ', open, bad) FROM dispatcherd.nodes WHERE id = $1`, first))
}

// One dependency of a flow is locked, so it is linked later than the other, whose end is counted by then. Meanwhile, another flow
// names the ended job. Linking both flows counts the end for the second flow only.
func TestEndIsNotCountedAgainWhenAnotherFlowIsLinked(t *testing.T) {
	w := newWorld(t)
	done, locked := w.insert(), w.insert()
	w.end(contract.Succeeded, done)
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `SELECT FROM dispatcherd.jobs_live WHERE id = $1 FOR UPDATE`, locked)
	require.NoError(t, err)
	x := w.after(done, locked)
	w.countEnds()
	require.Equal(t, 1, w.left(x))
	y := w.after(done, locked)
	require.NoError(t, tx.Rollback(t.Context()))
	w.countEnds()
	for _, node := range []int64{x, y} {
		require.Equal(t, "waiting", w.status(node), "a dependency is pending")
		require.Equal(t, 1, w.left(node))
	}
	w.end(contract.Succeeded, locked)
	w.countEnds()
	require.Equal(t, "pending", w.status(x))
	require.Equal(t, "pending", w.status(y))
}

// A plain job failed before a flow named it. It is retried while the other dependency runs. The node waits for both.
func TestRetriedDependencyIsAwaited(t *testing.T) {
	w := newWorld(t)
	job, v := w.insert(), w.insert()
	w.end(contract.FailedFinal, job)
	x := w.after(job, v)
	w.countEnds()
	require.Equal(t, 1, w.left(x))
	won := w.claim(v)
	require.Equal(t, 1, w.retry(job))
	w.countEnds()
	require.Equal(t, 2, w.left(x))
	w.end(contract.Succeeded, job)
	w.countEnds()
	require.Equal(t, "waiting", w.status(x))
	w.finish(won, contract.Succeeded, "")
	w.countEnds()
	require.Equal(t, "pending", w.status(x))
	require.Equal(t, "0 0", get[string](w, `SELECT concat_ws(' ', open, bad) FROM dispatcherd.nodes WHERE id = $1`, x))
}

// The retry comes before the end is counted. The messages about both are counted in their order.
func TestRetryOfADependencyFollowsItsEnd(t *testing.T) {
	w := newWorld(t)
	job, v := w.insert(), w.insert()
	x := w.after(job, v)
	w.countEnds()
	w.end(contract.FailedFinal, job)
	require.Equal(t, 1, w.retry(job))
	w.countEnds()
	require.Equal(t, 2, w.left(x))
	w.endsRelease(x, job, v)
}

// A flow depends on a member of a batch that has ended, and on the callback of the batch. Both run again after
// a retry of the batch, so the flow waits for both again.
func TestFlowWaitsForTheRetriedMembersAndCallbackOfABatch(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	member := w.members(batch, 1)[0]
	w.seal(batch)
	w.end(contract.FailedFinal, member)
	w.countEnds()
	w.end(contract.FailedFinal, batch)
	w.countEnds()
	v := w.insert()
	x := w.after(member, batch, v)
	w.countEnds()
	require.Equal(t, 1, w.left(x))
	require.Equal(t, 2, w.retryTree(batch))
	require.Equal(t, 3, w.left(x))
	w.end(contract.Succeeded, v)
	w.end(contract.Succeeded, member)
	w.countEnds()
	require.Equal(t, "waiting", w.status(x), "the callback is pending")
	require.Equal(t, 1, w.left(x))
	w.end(contract.Succeeded, batch)
	w.countEnds()
	require.Equal(t, "pending", w.status(x))
	require.Equal(t, "0 0", get[string](w, `SELECT concat_ws(' ', open, bad) FROM dispatcherd.nodes WHERE id = $1`, x))
}
