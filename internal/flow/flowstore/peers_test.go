package flowstore

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Oban #949: a job keeps a batch open until all others are inserted. Then it is cancelled. If it is the last
// job of the batch to end, no callback runs, because a cancellation of a job that does not run does not tell
// the batch. Here each end is recorded by the statement that ends the job.
func TestOban949CancellationOfTheLastJobEndsTheBatch(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	sentinel := w.members(batch, 1)[0]
	members := w.members(batch, 3)
	w.seal(batch)
	w.end(contract.Succeeded, members...)
	w.countEnds()
	require.Equal(t, "waiting", w.status(batch), "the sentinel is pending")
	w.exec(`SELECT dispatcherd.end_idle(ARRAY[$1::bigint], 'cancelled', session_user, NULL)`, sentinel)
	w.countEnds()
	require.Equal(t, "pending", w.status(batch))
	b := w.batch(batch)
	require.Equal(t, []int{3, 0, 1}, []int{b.Done, b.Failed, b.Cancelled})

	flow, n := w.flow(
		`{"callback": {"type": "c", "run_when": "ended"}, "nodes": [{"name": "sentinel", "type": "x"}, {"name": "a", "type": "x"}]}`,
	)
	w.end(contract.Succeeded, n["a"])
	w.exec(`SELECT dispatcherd.end_idle(ARRAY[$1::bigint], 'cancelled', session_user, NULL)`, n["sentinel"])
	w.countEnds()
	require.Equal(t, "pending", w.status(flow))
}

// Oban #784: the callback "exhausted" means that all jobs have ended, but cancelled jobs are not considered: a
// batch with one never runs it. Here a job that was cancelled has ended like one that failed, in each order.
func TestOban784CancelledJobsCountAsEnded(t *testing.T) {
	w := newWorld(t)
	outcomes := []contract.Outcome{contract.Succeeded, contract.FailedFinal, contract.Cancelled}
	for first := range outcomes {
		for runWhen, want := range map[string]string{"ended": "pending", "failed": "pending", "done": "cancelled"} {
			batch := w.open(runWhen)
			members := w.members(batch, len(outcomes))
			w.seal(batch)
			for i, member := range members {
				require.Equal(t, "waiting", w.status(batch))
				w.end(outcomes[(first+i)%len(outcomes)], member)
				w.countEnds()
			}
			require.Equal(t, want, w.status(batch), runWhen)
			b := w.batch(batch)
			require.Equal(t, []int{1, 1, 1}, []int{b.Done, b.Failed, b.Cancelled})
		}
	}
}

// Oban #954: a process ends while it inserts the callback of a batch, after the last job of the batch has
// ended. The callback is lost. Here the end is recorded by the transaction that ends the job, and the record is
// deleted by the one that releases the callback.
func TestOban954ProcessThatDiesBeforeTheCallbackLosesNoBatch(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	members := w.members(batch, 2)
	w.seal(batch)
	w.end(contract.Succeeded, members...)
	w.store.Close() // the process dies before it counts the ends

	second, err := pgx.Connect(t.Context(), w.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = second.Close(context.Background()) })
	tx, err := second.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `DELETE FROM dispatcherd.ends WHERE target = $1`, batch)
	require.NoError(t, err)
	w.exec(`SELECT pg_terminate_backend($1)`, int32(second.PgConn().PID())) // the next one dies before its transaction has ended
	require.Error(t, tx.Commit(t.Context()))

	third, err := claim.Open(t.Context(), claimfake.Config(w.dsn, "test"))
	require.NoError(t, err)
	t.Cleanup(third.Close)
	w.Settler = Settler{storeOf(third)}
	require.Eventually(t, func() bool { // the server notices the end of the session
		w.countEnds()
		return w.status(batch) == "pending"
	}, time.Minute, 5*time.Millisecond)
	w.countEnds()
	require.Equal(t, 1, get[int](w, `SELECT count(*) FROM dispatcherd.jobs WHERE id = $1`, batch))
	require.Equal(t, 2, w.batch(batch).Done)
}

// Attack 11: a batch is never sealed. Its callback waits, whatever its members do, and the metric of the alert
// counts it. A cancellation of the batch ends it.
func TestBatchThatIsNeverSealedEndsByACancellation(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	members := w.members(batch, 2)
	w.end(contract.Succeeded, members[0])
	w.countEnds()
	require.Equal(t, "waiting", w.status(batch))
	w.end(contract.FailedFinal, members[1])
	w.countEnds()
	require.Equal(t, "waiting", w.status(batch), "members may follow")
	require.Nil(t, w.batch(batch).Open)
	counts, err := w.store.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, counts.Unsealed)
	require.Zero(t, w.repair())

	w.cancelTree(batch)
	w.countEnds()
	require.Equal(t, "cancelled", w.status(batch))
	b := w.batch(batch)
	require.Equal(t, []int{1, 1, 0}, []int{b.Done, b.Failed, b.Cancelled})
	require.True(t, b.Sealed && b.Ended)
	require.Equal(t, "batch_is_open", w.refused(`SELECT dispatcherd.insert_member($1, '{"type": "x"}')`, batch).ConstraintName)
	counts, err = w.store.Counts(t.Context())
	require.NoError(t, err)
	require.Zero(t, counts.Unsealed)
}
