package flowstore

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A cancellation reaches pending, waiting and running jobs below a batch, and no further job joins it.
func TestCancellationReachesTheWholeTree(t *testing.T) {
	w := newWorld(t)
	id := w.open("ended")
	inner := get[int64](w, `SELECT dispatcherd.open_batch('{"type": "inner"}', 'ended', parent => $1)`, id)
	members, below := w.members(id, 3), w.members(inner, 2)
	won := w.claim(members[0])
	w.cancelTree(id)
	w.countEnds()
	require.Equal(t, 6, get[int](w, `SELECT count(*) FROM dispatcherd.jobs WHERE status = 'cancelled'`),
		"two callbacks, two members, two members below")
	require.Equal(t, []int64{members[0]}, get[[]int64](w, `SELECT array_agg(target) FROM dispatcherd.operations WHERE kind = 'cancel'`))
	require.Equal(t, "batch_is_open", w.refused(`INSERT INTO dispatcherd.jobs (type, parent) VALUES ('x', $1)`, id).ConstraintName)
	w.finish(won, contract.Cancelled, "")
	w.countEnds()
	require.True(t, w.batch(id).Ended)
	require.True(t, w.batch(inner).Ended)
	require.Equal(t, "cancelled", w.status(below[0]))
}

// Members of a transaction that was open while the batch was cancelled are cancelled after its commit.
func TestMembersThatCommitAfterTheCancellationAreCancelled(t *testing.T) {
	w := newWorld(t)
	id := w.open("ended")
	producer := w.begin()
	_, err := producer.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, parent) VALUES ('x', $1)`, id)
	require.NoError(t, err)
	w.cancelTree(id)
	w.countEnds()
	require.False(t, w.batch(id).Sealed)
	require.NoError(t, producer.Commit(t.Context()))
	w.countEnds()
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.jobs_live`))
	require.True(t, w.batch(id).Ended)
}

// Attacks 4 and 5: children are cancelled when their parent ends in any way, and none is inserted after that.
func TestChildrenEndWithTheirParent(t *testing.T) {
	w := newWorld(t)
	for _, outcome := range []contract.Outcome{contract.Succeeded, contract.FailedFinal, contract.Cancelled, contract.Quarantined} {
		parent := get[int64](w, `INSERT INTO dispatcherd.jobs (type) VALUES ('p') RETURNING id`)
		won := w.claim(parent)
		children, _ := w.children(parent, int32(won[0].Attempt), 2, false)
		detached, _ := w.children(parent, int32(won[0].Attempt), 1, true)
		w.end(contract.Succeeded, children[0])
		w.finish(won, outcome, "")
		_, refused := w.children(parent, int32(won[0].Attempt), 1, false)
		require.Equal(t, "parent_is_running", refused.Rule)
		w.countEnds()
		require.Equal(t, "cancelled", w.status(children[1]), outcome)
		require.Equal(t, "pending", w.status(detached[0]))
		require.True(t, w.batch(parent).Ended)
	}
}

// Attack 7: one COPY contains a duplicate unique key. It is refused and names the key.
// Attack 8: two transactions insert the same key. The second waits, and then fails or skips.
func TestUniqueKeyBelongsToOneLiveJob(t *testing.T) {
	w := newWorld(t)
	_, err := w.db.CopyFrom(t.Context(), pgx.Identifier{"dispatcherd", "jobs"}, []string{"type", "unique_key"},
		pgx.CopyFromRows([][]any{{"x", "a"}, {"x", "b"}, {"x", "a"}}))
	require.ErrorContains(t, err, "jobs_live_unique_key")
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.jobs`))

	for sql, second := range map[string]bool{
		`INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('x', 'k')`:                        false,
		`INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('x', 'k') ON CONFLICT DO NOTHING`: true,
		`SELECT dispatcherd.insert_unique('{"type": "x"}', 'k')`:                                   true,
	} {
		tx := w.begin()
		_, err := tx.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('x', 'k')`)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := w.db.Exec(t.Context(), sql)
			done <- err
		}()
		w.awaitLock()
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, second, <-done == nil, sql)
		require.Equal(t, 1, get[int](w, `SELECT count(*) FROM dispatcherd.jobs`))
		w.exec(`DELETE FROM dispatcherd.jobs`)
	}
}

// insert_unique returns the id of the job that has the key, for a time also after its end.
func TestUniqueKeyStaysTakenForATime(t *testing.T) {
	w := newWorld(t)
	insert := func(key string, long *time.Duration) (id int64, inserted bool) {
		require.NoError(t,
			w.db.QueryRow(t.Context(), `SELECT id, inserted FROM dispatcherd.insert_unique('{"type": "x"}', $1, $2)`, key, long).
				Scan(&id, &inserted),
		)
		return id, inserted
	}
	hour := time.Hour
	for key, long := range map[string]*time.Duration{"k": nil, "hour": &hour} {
		id, inserted := insert(key, long)
		require.True(t, inserted)
		again, inserted := insert(key, long)
		require.False(t, inserted)
		require.Equal(t, id, again)
		w.end(contract.Succeeded, id)
		again, inserted = insert(key, long)
		require.Equal(t, long == nil, inserted, key)
		require.Equal(t, long == nil, again != id)
	}
	w.exec(`UPDATE dispatcherd.uniques SET until = now()`)
	_, inserted := insert("hour", &hour)
	require.True(t, inserted)
}

// A retried flow runs its failed nodes and those that were cancelled because of them.
func TestRetriedFlowContinues(t *testing.T) {
	w := newWorld(t)
	id, n := w.flow(
		`{"callback": {"type": "end"}, "nodes": [
			{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}, {"name": "c", "type": "x", "after": ["b"]},
		{"name": "free", "type": "x"}, {"name": "last", "type": "x", "after": ["c", "free"]}]}`,
	)
	w.end(contract.Succeeded, n["a"])
	w.countEnds()
	w.end(contract.FailedFinal, n["b"])
	w.countEnds()
	require.Equal(t, 2, w.retryTree(id), "b and c")
	for _, name := range []string{"b", "free", "c", "last"} {
		require.Equal(t, "pending", w.status(n[name]), name)
		w.end(contract.Succeeded, n[name])
		w.countEnds()
	}
	require.Equal(t, "pending", w.status(id))
	require.Equal(t, 5, w.batch(id).Done)
	require.Zero(t, w.batch(id).Failed+w.batch(id).Cancelled)
}

// Attack 17: a member and a dependency are deleted by hand. The repair counts from the rows.
func TestRepairCountsFromTheRows(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	members := w.members(batch, 2)
	w.seal(batch)
	flow, n := w.flow(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}]}`)
	w.exec(`DELETE FROM dispatcherd.jobs WHERE id = ANY ($1)`, []int64{members[0], n["a"]})
	w.end(contract.Succeeded, members[1])
	w.countEnds()
	require.Equal(t, "waiting", w.status(batch))
	w.repair()
	w.countEnds()
	require.Equal(t, "pending", w.status(batch))
	require.Equal(t, "cancelled", w.status(n["b"]))
	require.True(t, w.batch(flow).Ended)
	require.Zero(t, w.repair())
}

// What ended long ago is deleted as a whole.
func TestEndedFlowsExpire(t *testing.T) {
	w := newWorld(t)
	_, n := w.flow(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}]}`)
	open, _ := w.flow(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}]}`)
	w.end(contract.FailedFinal, n["a"])
	w.countEnds()
	w.exec(`UPDATE dispatcherd.batches SET ended_at = ended_at - interval '2 hours'`)
	more, err := w.Expire(t.Context(), time.Hour)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, []int64{open}, get[[]int64](w, `SELECT array_agg(id) FROM dispatcherd.batches`))
	require.Equal(t, 2, get[int](w, `SELECT count(*) FROM dispatcherd.nodes`))
	require.Equal(t, 1, get[int](w, `SELECT count(*) FROM dispatcherd.edges`))
}
