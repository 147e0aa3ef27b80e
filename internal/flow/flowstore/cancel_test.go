package flowstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
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
	w.exec(`SELECT dispatcherd.cancel_tree($1)`, batch)
	require.True(t, w.asked(member))
	w.countEnds()
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
	w.exec(`SELECT dispatcherd.cancel_tree($1)`, parent)
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
	_, err := tx.Exec(t.Context(), `SELECT dispatcherd.release_waiting(ARRAY[$1::bigint], ARRAY[NULL::jsonb])`, job)
	require.NoError(t, err)
	cancelled := make(chan int, 1)
	go func() {
		var n int
		if w.db.QueryRow(t.Context(), `SELECT cancelled FROM dispatcherd.cancel_tree($1)`, job).Scan(&n) != nil {
			n = -1
		}
		cancelled <- n
	}()
	w.awaitLock()
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, <-cancelled)
	require.Equal(t, "cancelled", w.status(job))
}

// The nodes of a cancelled flow were locked. When their dependencies have ended, they are cancelled, and say why.
func TestNodeOfACancelledFlowSaysSo(t *testing.T) {
	w := newWorld(t)
	flow, n := w.flow(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}]}`)
	won := w.claim(n["a"])
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `SELECT FROM dispatcherd.jobs_waiting FOR UPDATE`)
	require.NoError(t, err)
	w.exec(`SELECT dispatcherd.cancel_tree($1)`, flow)
	w.finish(won, contract.Succeeded, "")
	require.NoError(t, tx.Commit(t.Context()))
	w.countEnds()
	require.Equal(t, "cancelled", w.status(n["b"]))
	require.Contains(t, w.reason(n["b"]), "the flow was cancelled")
}

// A dependency failed and runs again before its first end is counted. Its counter is 2: the end that is recorded, and the next one. A
// repair between them changes nothing, and repairs a counter that is wrong.
func TestRepairCountsARecordedEndAndTheNextRun(t *testing.T) {
	w := newWorld(t)
	job, v := w.insert(), w.insert()
	x := w.after(job, v)
	w.countEnds()
	w.end(contract.FailedFinal, job)
	require.Equal(t, 1, w.retry(job))
	require.Equal(t, 3, w.left(x), "two ends of the job, and one of the other")
	require.Zero(t, w.repair())
	require.Zero(t, get[int](w, `SELECT dispatcherd.repair_flows()`))
	w.exec(`UPDATE dispatcherd.nodes SET open = 7 WHERE id = $1`, x)
	require.Equal(t, 1, w.repair())
	require.Equal(t, 3, w.left(x))
	w.countEnds()
	require.Equal(t, 2, w.left(x))
	w.endsRelease(x, job, v)
}

// A child is claimed while its parent is cancelled: its claim is under way when the pending children are
// cancelled, and commits before the running ones are checked. It is asked to cancel, too. The trigger tries the
// lock again and again, because the statement is to wait for it as long as it takes.
func TestCancellationReachesAChildThatIsClaimedMeanwhile(t *testing.T) {
	w := newWorld(t)
	parent := w.insert()
	won := w.claim(parent)
	runs, claimed := w.spawn(won[0]), w.spawn(won[0])
	w.claim(runs)
	w.exec(`CREATE FUNCTION public.pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_advisory_xact_lock(8); LOOP EXIT WHEN pg_try_advisory_xact_lock_shared(7); END LOOP; RETURN NULL; END $$`)
	w.exec(
		`CREATE TRIGGER pause AFTER INSERT ON dispatcherd.operations FOR EACH ROW WHEN (NEW.who = 'me') EXECUTE FUNCTION public.pause()`,
	)
	claim, pause := w.begin(), w.begin()
	_, err := claim.Exec(
		t.Context(),
		`UPDATE dispatcherd.jobs_live SET status = 'running', attempt = 1, dispatcher = $1, token = 5, started_at = now() WHERE id = $2`,
		w.store.Dispatcher(),
		claimed,
	)
	require.NoError(t, err)
	_, err = pause.Exec(t.Context(), `SELECT pg_advisory_xact_lock(7)`)
	require.NoError(t, err)
	w.exec(`INSERT INTO dispatcherd.operations (kind, target, who) VALUES ('cancel', $1, 'another')`, parent)
	done := make(chan error, 1)
	go func() {
		_, err := w.db.Exec(t.Context(), `SELECT dispatcherd.cancel_tree($1, 'me')`, parent)
		done <- err
	}()
	require.Eventually(t, func() bool {
		return get[bool](w, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE a.datname = current_database() AND l.locktype = 'advisory' AND l.objid = 8)`)
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, claim.Commit(t.Context()))
	require.NoError(t, pause.Commit(t.Context()))
	require.NoError(t, <-done)
	require.True(t, w.asked(runs))
	w.countEnds()
	require.True(t, w.asked(claimed))
}
