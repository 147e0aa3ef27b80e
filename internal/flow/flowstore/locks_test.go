package flowstore

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
)

// An operator locks a table, as REINDEX and ALTER TABLE do. A lock is no failure of the targets, which would set them aside.
func TestStepBesideALockedTableIsBusy(t *testing.T) {
	w := newWorld(t)
	batch := w.open("done")
	w.seal(batch)
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `LOCK TABLE dispatcherd.jobs_waiting IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	r, err := w.Step(t.Context(), dispatcherd.JobID(batch), flow.Full)
	require.NoError(t, err)
	require.True(t, r.Busy && r.Left)
	require.NoError(t, tx.Rollback(t.Context()))
	w.countEnds()
	require.True(t, w.batch(batch).Ended)
}

// A producer has inserted a job with a unique key and keeps its transaction open. A failed member with this key is retried.
func TestRetryBesideAnOpenUniqueKeyIsBusy(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	member := get[int64](w, `INSERT INTO dispatcherd.jobs (type, parent, unique_key) VALUES ('x', $1, 'k') RETURNING id`, batch)
	w.seal(batch)
	w.end(contract.FailedFinal, member)
	w.countEnds()
	w.end(contract.Succeeded, batch)
	w.countEnds()
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('x', 'k')`)
	require.NoError(t, err)
	_, err = w.askRetry(batch)
	require.NoError(t, err)
	for busy := false; !busy; { // a step of a slow machine may end before it meets the lock
		r, err := w.Step(t.Context(), dispatcherd.JobID(batch), flow.Full)
		require.NoError(t, err)
		require.True(t, r.Left)
		busy = r.Busy
	}
	require.NoError(t, tx.Rollback(t.Context()))
	w.countEnds()
	require.Equal(t, "pending", w.status(member))
}

// Owners take turns. A flow that a superuser has inserted has no owner.
func TestOwnersOfTargetsAreRead(t *testing.T) {
	w := newWorld(t)
	w.after(w.insert())
	batch := w.open("done")
	w.exec(`UPDATE dispatcherd.batches SET owner = 'wages' WHERE id = $1`, batch)
	w.seal(batch)
	due, err := w.Due(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, due, 2)
	require.Empty(t, due[0].Owner)
	require.Equal(t, Due{dispatcherd.JobID(batch), "wages"}, due[1])
}

// A job on which nodes depend has no row of batches. It is set aside like a batch, or each heartbeat would find it again, and each
// operator would look for it in vain.
func TestJobWithDependantsIsSetAside(t *testing.T) {
	w := newWorld(t)
	job := w.insert()
	node := w.after(job)
	w.countEnds()
	w.end(contract.Succeeded, job)
	require.NoError(t, w.SetAside(t.Context(), dispatcherd.JobID(job), errors.New("a page is damaged")))
	due, err := w.Due(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, due)
	require.Equal(t, "waiting", w.status(node))
	require.Equal(t, "a page is damaged", get[string](w, `SELECT aside FROM dispatcherd.batches WHERE id = $1`, job))
	require.NoError(t, joins.Joins{DB: w.db}.Repair(t.Context(), dispatcherd.JobID(job)))
	w.countEnds()
	require.Equal(t, "pending", w.status(node))
	w.end(contract.Succeeded, node)
	w.countEnds()
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.batches WHERE aside IS NOT NULL OR ended_at IS NULL`))
}
