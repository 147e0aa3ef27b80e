package flowstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
)

// What waits for a lock and then counts rows needs a new snapshot. A transaction with one snapshot for all of its statements would
// leave out what has committed meanwhile, so it is refused.
func TestSealNeedsReadCommitted(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	w.members(batch, 1)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := w.db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT dispatcherd.seal_batch($1)`, batch)
		require.NoError(t, tx.Rollback(t.Context()))
		var e *pgconn.PgError
		require.ErrorAs(t, err, &e)
		require.Equal(t, "25001 isolation_is_read_committed", e.Code+" "+e.ConstraintName)
		require.Contains(t, e.Message, "this transaction has "+string(level))
	}
	require.False(t, w.batch(batch).Sealed)
	w.seal(batch)
}

// The row of a batch is the lock of its end, so a callback cannot also be the parent of children. Detached children belong to no job.
func TestCallbackHasNoChildren(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	w.seal(batch)
	flow, n := w.flow(`{"callback": {"type": "c"}, "nodes": [{"name": "a", "type": "x"}]}`)
	w.end(contract.Succeeded, n["a"])
	w.countEnds()
	for _, callback := range []int64{batch, flow} {
		before := w.batch(callback)
		won := w.claim(callback)
		_, refused := w.children(callback, int32(won[0].Attempt), 1, false)
		require.Equal(t, "callback_has_no_children", refused.Rule)
		require.Equal(t, fmt.Sprintf("job %d is the callback of a batch or flow: its children must be detached", callback), refused.Reason)
		detached, _ := w.children(callback, int32(won[0].Attempt), 1, true)
		child := detached[0]
		w.finish(won, contract.Succeeded, "")
		w.countEnds()
		require.Equal(t, "pending", w.status(child))
		require.Equal(t, before, w.batch(callback))
	}
}

// inserts are the ways to insert a member.
var inserts = []string{
	`INSERT INTO dispatcherd.jobs (type, parent) VALUES ('x', $1)`,
	`SELECT dispatcherd.insert_member($1, '{"type": "x"}')`,
	`SELECT dispatcherd.open_batch('{"type": "c"}', parent => $1)`,
}

// A job has only the children that it inserts itself, and its row in batches is not sealed by hand.
func TestParentOfChildrenTakesNoMembers(t *testing.T) {
	w := newWorld(t)
	parent := w.insert()
	won := w.claim(parent)
	w.spawn(won[0])
	for _, id := range []int64{parent, w.insert(), 1_000_000} {
		for _, sql := range inserts {
			require.Equal(t, "23503 parent_is_a_batch", w.rule(sql, id), sql)
		}
	}
	require.Equal(t, "P0002 batch_exists", w.rule(`SELECT dispatcherd.seal_batch($1)`, parent))
	require.False(t, w.batch(parent).Sealed)
	child := w.spawn(won[0])
	w.finish(won, contract.Succeeded, "")
	w.countEnds()
	require.Equal(t, "cancelled", w.status(child))
	require.Equal(t, 2, w.batch(parent).Cancelled)
}

// A flow has only the nodes of its document.
func TestFlowTakesNoMembers(t *testing.T) {
	w := newWorld(t)
	flow, _ := w.flow(`{"nodes": [{"name": "a", "type": "x"}]}`)
	for _, sql := range inserts {
		require.Equal(t, "23503 parent_is_a_batch", w.rule(sql, flow), sql)
	}
	require.Equal(t, 1, *w.batch(flow).Open)
}

// A time of zero or less for a unique key would be no time at all. An instant after the year 9999 cannot be written as JSON.
func TestTimeOfAUniqueKeyIsPositiveAndAtMost100Years(t *testing.T) {
	w := newWorld(t)
	for _, long := range []string{"0", "-1 hour", "9000 years", "1000000 years", "36526 days"} {
		require.Equal(t, "23514 for_time_is_up_to_100_years",
			w.rule(`SELECT dispatcherd.insert_unique('{"type": "x"}', 'k', $1::text::interval)`, long))
	}
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.jobs`))
	require.True(t, get[bool](w, `SELECT inserted FROM dispatcherd.insert_unique('{"type": "x"}', 'k', NULL)`))
	require.True(t, get[bool](w, `SELECT inserted FROM dispatcherd.insert_unique('{"type": "x"}', 'long', '100 years')`))
	_, _, err := joins.Joins{DB: w.db}.InsertUnique(t.Context(), []byte(`{"type": "x"}`), "k2", 200*365*24*time.Hour)
	require.ErrorIs(t, err, joins.ErrInvalid)
	require.ErrorContains(t, err, "must be > 0 and at most 100 years")
}

// In after, 17 is the id of a job and "17" would be the name of a node. They look alike in the inputs of a
// node, so a name has not only digits.
func TestNodeNameIsNoNumber(t *testing.T) {
	w := newWorld(t)
	for name, refused := range map[string]bool{"17": true, "0": true, "007": true, "17a": false, "-17": false, "1.7": false} {
		document := fmt.Sprintf(`{"nodes": [{"name": %q, "type": "x"}]}`, name)
		if !refused {
			w.flow(document)
			continue
		}
		e := w.refused(`SELECT dispatcherd.insert_flow($1)`, document)
		require.Equal(t, "node_name_is_no_number", e.ConstraintName)
		require.Equal(t, name, e.ColumnName)
		require.Contains(t, e.Message, `node "`+name+`"`)
	}
}
