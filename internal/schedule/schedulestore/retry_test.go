package schedulestore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// fail ends all jobs as failed, and returns them in the order of their ids.
func (w *world) fail() (ids []int64) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow(w.t.Context(), `WITH gone AS (
		DELETE FROM dispatcherd.jobs_live RETURNING id, type, payload
	), failed AS (
		INSERT INTO dispatcherd.jobs_failed (id, type, payload, status, finished_at) SELECT id, type, payload, 'failed', now() FROM gone
	) SELECT array_agg(id ORDER BY id) FROM gone`).Scan(&ids))
	return ids
}

// retry makes a job pending again.
func (w *world) retry(id int64) error {
	return claim.Jobs{DB: w.db}.Retry(w.t.Context(), dispatcherd.JobID(id))
}

// A tick removes runs that have ended from the runs of the schedule. A retry adds its run again.
func TestRetriedRunCountsAsOpen(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 1)))
	first := w.fail()[0]
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 2)), "the first run has ended")
	w.end()
	require.NoError(t, w.retry(first))
	require.Equal(t, outcomes("skipped"), w.make(w.controller, minute(&s, 3)))
	w.end()
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 4)))
}

// A retry does not make a second open run of a schedule, unless its runs may overlap.
func TestRetryBesideAnOpenRunIsRefusedUnlessAllowAll(t *testing.T) {
	w := newWorld(t)
	for _, policy := range []string{contract.Skip, contract.QueueOne, contract.QueueAll, contract.CancelOther, contract.AllowAll} {
		s := w.cron(policy, func(s *contract.Schedule) { s.Overlap = policy })
		require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 1)))
		first := w.fail()[0]
		require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 2)))
		err := w.retry(first)
		if policy == contract.AllowAll {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, `it is a run of schedule "`+policy+`", and its run `)
		require.ErrorContains(t, err, ` has not ended (overlap = `+policy+`)`)
		second := w.fail()[0]
		require.Equal(t, 1, w.retryMany(first, second), "one run of both")
		require.Equal(t, []int64{second}, w.fail())
	}
}

// The schedule was deleted, so no further tick overlaps the run.
func TestRunsOfADeletedScheduleCanBeRetried(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", func(s *contract.Schedule) { s.Overlap = contract.CancelOther })
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 1)))
	first := w.fail()[0]
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 2)))
	second := w.fail()[0]
	require.NoError(t, w.Remove(t.Context(), "s"))
	require.Equal(t, 2, w.retryMany(first, second))
}

// retryMany retries jobs in one statement.
func (w *world) retryMany(ids ...int64) int {
	jobs := make([]dispatcherd.JobID, len(ids))
	for i, id := range ids {
		jobs[i] = dispatcherd.JobID(id)
	}
	n, _, err := claim.Jobs{DB: w.db}.RetryMany(w.t.Context(), jobs)
	require.NoError(w.t, err)
	return n
}
