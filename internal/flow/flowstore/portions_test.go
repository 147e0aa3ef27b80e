package flowstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// fan returns a flow of a root and nodes that depend on it.
func fan(t *testing.T, size int, takesResults bool) string {
	t.Helper()
	nodes := []map[string]any{{"name": "root", "type": "x"}}
	for i := range size {
		nodes = append(nodes,
			map[string]any{"name": "n" + strconv.Itoa(i), "type": "dependant", "after": []string{"root"}, "takes_results": takesResults})
	}
	document, err := json.Marshal(map[string]any{"nodes": nodes})
	require.NoError(t, err)
	return string(document)
}

// watchReleases counts the nodes that each statement releases or cancels.
func (w *world) watchReleases() {
	w.t.Helper()
	w.exec(`CREATE TABLE public.releases (flow bigint, nodes int)`)
	w.exec(`CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN
			INSERT INTO public.releases SELECT o.flow, count(*) FROM o JOIN n USING (id)
			WHERE o.ready_at IS NULL AND n.ready_at IS NOT NULL GROUP BY o.flow;
			RETURN NULL;
		END'`)
	w.exec(
		`CREATE TRIGGER note AFTER UPDATE ON dispatcherd.nodes REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT
			EXECUTE FUNCTION public.note()`,
	)
}

// largest returns how many nodes of a flow a statement has released or cancelled at most, and how many all statements have.
func (w *world) largest(flow int64) (most, total int) {
	w.t.Helper()
	require.NoError(w.t,
		w.db.QueryRow(w.t.Context(), `SELECT max(nodes), sum(nodes) FROM public.releases WHERE flow = $1`, flow).Scan(&most, &total))
	return most, total
}

// The root has a result of 0.9 MB, and 40 nodes take it. A settlement that copied it 40 times would need much memory and time, so
// each of them releases nodes with about 4 MB of inputs. All nodes are released.
func TestNodesWithLargeInputsAreReleasedInPortions(t *testing.T) {
	w := newWorld(t)
	const size = 40
	flow, n := w.flow(fan(t, size, true))
	w.finish(w.claim(n["root"]), contract.Succeeded, `"`+strings.Repeat("r", 900_000)+`"`)
	w.watchReleases()
	w.countEnds()
	require.Equal(
		t,
		size,
		get[int](w, `SELECT count(*) FROM dispatcherd.jobs_live WHERE type = 'dependant' AND length(payload -> 'inputs' ->> 'root') = 900000`),
	)
	most, total := w.largest(flow)
	require.LessOrEqual(t, most, 5)
	require.Equal(t, size, total, "each once")
}

// dense returns a flow of two layers, in which each node of the second depends on all of the first.
func dense(size int) string {
	var first, second []string
	for i := range size {
		first = append(first, fmt.Sprintf(`"a%d"`, i))
	}
	after := strings.Join(first, ",")
	for i := range size {
		second = append(second, fmt.Sprintf(`{"name": "a%d", "type": "x"}`, i))
	}
	for i := range size {
		second = append(second, fmt.Sprintf(`{"name": "b%d", "type": "dependant", "after": [%s]}`, i, after))
	}
	return `{"nodes": [` + strings.Join(second, ",") + `]}`
}

// A dense flow has almost 100,000 dependencies. Each step counts 1,000 of them at most in a round, and all nodes are released. A denser one
// is refused.
func TestFlowHasAtMostAHundredThousandDependencies(t *testing.T) {
	w := newWorld(t)
	e := w.refused(`SELECT dispatcherd.insert_flow($1)`, dense(330))
	require.Equal(t, "flow_has_at_most_100000_edges", e.ConstraintName)
	const size = 316
	_, n := w.flow(dense(size))
	var first []int64
	for i := range size {
		first = append(first, n["a"+strconv.Itoa(i)])
	}
	w.end(contract.Succeeded, first...)
	w.countEnds()
	require.Equal(t, size, get[int](w, `SELECT count(*) FROM dispatcherd.jobs_live WHERE type = 'dependant' AND status = 'pending'`))
}

// A job has 3,000 dependants. Each step releases at most 1,000 of them. All are released once, and the flow ends.
func TestManyNodesAreReleasedInPortions(t *testing.T) {
	w := newWorld(t)
	const size = 3000
	w.watchReleases()
	for outcome, status := range map[contract.Outcome]string{contract.Succeeded: "pending", contract.FailedFinal: "cancelled"} {
		flow, n := w.flow(fan(t, size, false))
		w.end(outcome, n["root"])
		w.countEnds()
		require.Equal(
			t,
			size,
			get[int](w, `SELECT count(*) FROM dispatcherd.jobs WHERE parent = $1 AND status::text = $2 AND type = 'dependant'`, flow, status),
		)
		most, total := w.largest(flow)
		require.LessOrEqual(t, most, 1000)
		require.Equal(t, size, total, "each once")
		require.Equal(t, status == "cancelled", w.batch(flow).Ended)
	}
}

// A batch of 25,000 members is cancelled in steps, each of which is short.
func TestManyMembersAreCancelledInPortions(t *testing.T) {
	w := newWorld(t)
	const size = 25_000
	batch := w.open("ended")
	members := w.members(batch, size)
	won := w.claim(members[size-1])
	require.Equal(t, size, w.cancelTree(batch).Cancelled, "all but one, and the callback")
	const number = `SELECT count(*) FROM dispatcherd.jobs_cancelled WHERE parent = $1`
	require.Equal(t, "batch_is_open", w.refused(`SELECT dispatcherd.insert_member($1, '{"type": "x"}')`, batch).ConstraintName)
	w.countEnds()
	require.Equal(t, size-1, get[int](w, number, batch))
	require.Equal(t, 1, get[int](w, `SELECT count(*) FROM dispatcherd.operations WHERE kind = 'cancel'`))
	require.False(t, w.batch(batch).Ended)
	w.finish(won, contract.Cancelled, "")
	w.countEnds()
	require.Equal(t, "cancelled", w.status(batch))
	require.Equal(t, size, w.batch(batch).Cancelled)
	require.True(t, w.batch(batch).Ended)
}

// A step after failures is a short transaction: it does one round, although there is more to do. With many rounds, each with the risk to
// fail again, it might never succeed on a bad connection.
func TestStepWithoutTimeDoesOneRound(t *testing.T) {
	w := newWorld(t)
	const size = 5
	batch := w.open("ended")
	w.members(batch, size)
	w.cancelTree(batch)
	one, long := flow.Limits{Items: 1, Bytes: 1000}, flow.Limits{Items: 1, Bytes: 1000, Time: time.Hour}
	r, err := w.Step(t.Context(), dispatcherd.JobID(batch), one)
	require.NoError(t, err)
	require.Equal(t, 1, r.Rounds)
	require.True(t, r.Left)
	r, err = w.Step(t.Context(), dispatcherd.JobID(batch), long)
	require.NoError(t, err)
	require.Greater(t, r.Rounds, 1)
	require.False(t, r.Left)
}

// large is a payload of 0.9 MB, which hardly can be compressed.
const large = `(SELECT jsonb_build_object('text', string_agg(md5(i::text), '')) FROM generate_series(1, 28000) i)`

// completeLarge ends all members of batches with callbacks of 0.9 MB.
func (w *world) completeLarge(batches int) {
	w.t.Helper()
	var members []int64
	for range batches {
		batch := w.open("ended")
		members = append(members, w.members(batch, 1)...)
		w.seal(batch)
	}
	w.exec(`UPDATE dispatcherd.jobs_waiting SET payload = ` + large)
	w.end(contract.Succeeded, members...)
}

// A batch has members of 0.9 MB. Each step cancels about 4 MB of them, so that no statement lasts long.
func TestLargeMembersAreCancelledInPortions(t *testing.T) {
	w := newWorld(t)
	const size = 30
	batch := w.open("ended")
	w.exec(`INSERT INTO dispatcherd.jobs (type, parent, payload) SELECT 'x', $1, `+large+` FROM generate_series(1, $2::int)`, batch, size)
	w.cancelTree(batch)
	_, err := w.Step(t.Context(), dispatcherd.JobID(batch), full)
	require.NoError(t, err)
	w.countEnds()
	require.Equal(t, size, w.batch(batch).Cancelled)
	require.True(t, w.batch(batch).Ended)
}

// Batches with callbacks of 0.9 MB end at once. Each step releases about 4 MB of them. All are released.
func TestLargeCallbacksAreReleasedInPortions(t *testing.T) {
	w := newWorld(t)
	const size = 30
	w.exec(`CREATE TABLE public.releases (jobs int)`)
	w.exec(
		`CREATE FUNCTION public.note() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.releases SELECT count(*) FROM o; RETURN NULL; END'`,
	)
	w.exec(
		`CREATE TRIGGER note AFTER DELETE ON dispatcherd.jobs_waiting REFERENCING OLD TABLE AS o FOR EACH STATEMENT
			EXECUTE FUNCTION public.note()`,
	)
	w.completeLarge(size)
	w.countEnds()
	require.Equal(t, size, get[int](w, `SELECT count(*) FROM dispatcherd.jobs WHERE type = 'callback' AND status = 'pending'`))
	require.LessOrEqual(t, get[int](w, `SELECT max(jobs) FROM public.releases`), 10)
}

// The nodes of a flow have payloads of 0.9 MB, and become ready at once. One call of a settlement releases all of them, in steps.
func TestLargeNodesAreReleasedInPortions(t *testing.T) {
	w := newWorld(t)
	const size = 30
	flow, n := w.flow(fan(t, size, false))
	w.exec(`UPDATE dispatcherd.jobs_waiting SET payload = ` + large)
	w.watchReleases()
	w.end(contract.Succeeded, n["root"])
	w.countEnds()
	require.Equal(t, size, get[int](w, `SELECT count(*) FROM dispatcherd.jobs WHERE type = 'dependant' AND status = 'pending'`))
	most, _ := w.largest(flow)
	require.LessOrEqual(t, most, 10)
}

// Another transaction has locked callbacks that have more than 4 MB together. A settlement does not say that there is more to do at once.
func TestLockedLargeCallbacksAreLeft(t *testing.T) {
	w := newWorld(t)
	const size = 10
	w.completeLarge(size)
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `SELECT FROM dispatcherd.jobs_waiting FOR UPDATE`)
	require.NoError(t, err)
	for range 3 {
		counted, err := w.CountEnds(t.Context())
		require.NoError(t, err)
		require.True(t, counted.Blocked)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	w.countEnds()
	require.Equal(t, size, get[int](w, `SELECT count(*) FROM dispatcherd.jobs WHERE type = 'callback' AND status = 'pending'`))
}

// wrongBatches returns sealed batches whose counters are wrong, because one of two members was deleted by hand.
func (w *world) wrongBatches(n int) (batches []int64) {
	w.t.Helper()
	for range n {
		batch := w.open("ended")
		members := w.members(batch, 2)
		w.seal(batch)
		w.exec(`DELETE FROM dispatcherd.jobs WHERE id = $1`, members[0])
		batches = append(batches, batch)
	}
	return batches
}

// A repair corrects the counters of all open batches, and leaves those that have ended.
func TestOpenBatchesAreRepaired(t *testing.T) {
	w := newWorld(t)
	batches := w.wrongBatches(4)
	w.countEnds()
	w.exec(`UPDATE dispatcherd.batches SET ended_at = now() WHERE id = $1`, batches[1])
	require.Equal(t, 3, w.repair())
	for i, open := range []int{1, 2, 1, 1} {
		require.Equal(t, open, *w.batch(batches[i]).Open)
	}
	require.Equal(t, 1, w.batch(batches[0]).Cancelled, "the member that was deleted")
	require.Zero(t, w.repair())
}

// A count of millions of members would take longer than a step may, and delay all others.
func TestRepairDoesNotCountMoreThan100000Members(t *testing.T) {
	w := newWorld(t)
	batch := w.wrongBatches(1)[0]
	w.countEnds()
	for open, wrong := range map[int]int{100_001: 0, 100_000: 1} {
		w.exec(`UPDATE dispatcherd.batches SET open = $2 WHERE id = $1`, batch, open)
		require.Equal(t, wrong, w.repair())
		require.Equal(t, []int{open, 1}[wrong], *w.batch(batch).Open)
	}
}

// A call deletes a bounded number of rows of flows that ended long ago. All of them are deleted in the end, and the others stay.
func TestManyEndedFlowsExpireInPortions(t *testing.T) {
	w := newWorld(t)
	const flows, size = 8, 3000
	document := fan(t, size, false)
	for range flows {
		w.flow(document)
	}
	open, _ := w.flow(fan(t, 1, false))
	w.exec(`UPDATE dispatcherd.batches SET ended_at = now() - interval '2 hours', done = $2, open = 0 WHERE id <> $1`, open, size+1)
	count := func() int { return get[int](w, `SELECT count(*) FROM dispatcherd.nodes`) }
	calls := 0
	for more := true; more; calls++ {
		before := count()
		var err error
		more, err = w.Expire(t.Context(), time.Hour)
		require.NoError(t, err)
		require.LessOrEqual(t, before-count(), 10_000+size, "nodes that a call has deleted")
		require.Less(t, calls, 100)
	}
	require.Greater(t, calls, 1)
	require.Equal(t, 2, count())
	require.Equal(t, 1, get[int](w, `SELECT count(*) FROM dispatcherd.batches`))
	require.Equal(t, 1, get[int](w, `SELECT count(*) FROM dispatcherd.edges`))
}
