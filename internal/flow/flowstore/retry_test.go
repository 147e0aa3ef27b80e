package flowstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
)

// retry retries jobs, and returns how many it was.
func (w *world) retry(ids ...int64) int {
	w.t.Helper()
	jobs := make([]dispatcherd.JobID, len(ids))
	for i, id := range ids {
		jobs[i] = dispatcherd.JobID(id)
	}
	n, _, err := claim.Jobs{DB: w.db}.RetryMany(w.t.Context(), jobs)
	require.NoError(w.t, err)
	return n
}

// cancelTree cancels a batch, a flow, or a job with children.
func (w *world) cancelTree(id int64) contract.CancelledTree {
	w.t.Helper()
	c, err := joins.Joins{DB: w.db, By: "me"}.Cancel(w.t.Context(), dispatcherd.JobID(id))
	require.NoError(w.t, err)
	return c
}

// askRetry has dispatchers retry a batch or flow.
func (w *world) askRetry(id int64) (contract.RetriedTree, error) {
	return joins.Joins{DB: w.db}.Retry(w.t.Context(), dispatcherd.JobID(id))
}

// retryTree retries a batch or flow, and returns how many jobs it was.
func (w *world) retryTree(id int64) int {
	w.t.Helper()
	_, err := w.askRetry(id)
	require.NoError(w.t, err)
	c, err := w.CountEnds(w.t.Context())
	require.NoError(w.t, err)
	return c.Retried
}

// spawn inserts a child of a job that runs.
func (w *world) spawn(parent contract.Won) int64 {
	w.t.Helper()
	ids, refused := w.children(int64(parent.ID), int32(parent.Attempt), 1, false)
	require.Nil(w.t, refused)
	return ids[0]
}

// children inserts n children of a job. refused is not nil if a rule forbids it.
func (w *world) children(parent int64, attempt int32, n int, detached bool) (ids []int64, refused *claim.SpawnError) {
	w.t.Helper()
	err := pgx.BeginFunc(w.t.Context(), w.db, func(tx pgx.Tx) error {
		list, err := claim.InsertChildren(w.t.Context(), tx, spawn(parent, attempt, n, detached))
		for _, id := range list {
			ids = append(ids, int64(id))
		}
		return err
	})
	if refused, ok := errors.AsType[*claim.SpawnError](err); ok {
		return nil, refused
	}
	require.NoError(w.t, err)
	return ids, nil
}

func spawn(parent int64, attempt int32, n int, detached bool) *contract.SpawnRequest {
	return &contract.SpawnRequest{
		Parent: dispatcherd.JobID(parent), Attempt: dispatcherd.Attempt(attempt), Detached: detached,
		Jobs: []byte("[" + strings.TrimSuffix(strings.Repeat(`{"type": "x"},`, n), ",") + "]"),
	}
}

// rule returns the name of the rule by which a statement is refused, after its code.
func (w *world) rule(sql string, args ...any) string {
	w.t.Helper()
	e := w.refused(sql, args...)
	return e.Code + " " + e.ConstraintName
}

// The answer of a retry counts the jobs that run again, now or after others, and says why others do not.
func TestRetryCountsTheJobsThatRunAgain(t *testing.T) {
	w := newWorld(t)
	const idle = "they would be cancelled again: the jobs before them do not fit their run_when"
	flow, n := w.flow(`{"callback": {"type": "c"}, "nodes": [
		{"name": "a", "type": "x"}, {"name": "handler", "type": "x", "after": ["a"], "run_when": "failed"},
		{"name": "after", "type": "x", "after": ["handler"]},
		{"name": "b", "type": "x"}, {"name": "c", "type": "x", "after": ["b"]}]}`)
	w.end(contract.Succeeded, n["a"])
	w.end(contract.FailedFinal, n["b"])
	w.countEnds()
	r, err := w.askRetry(flow)
	require.NoError(t, err)
	require.Equal(t, contract.RetriedTree{
		Changed: 3, Skipped: 2, Why: []string{"2, because " + idle},
	}, r, "b, c and the callback")
	w.countEnds()
	require.Equal(t, []string{"pending", "waiting", "cancelled", "cancelled"},
		[]string{w.status(n["b"]), w.status(n["c"]), w.status(n["handler"]), w.status(n["after"])})

	refused := func(id int64, why string) {
		t.Helper()
		_, err := w.askRetry(id)
		var e *joins.RefusedError
		require.ErrorAs(t, err, &e)
		require.Equal(t, "nothing_runs", e.Rule)
		require.EqualError(t, err, fmt.Sprintf("batch %d: nothing would run again; left out: 1, because %s", id, why))
		require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.ends`))
	}
	handled := w.open("failed")
	w.end(contract.Succeeded, w.members(handled, 1)...)
	w.seal(handled)
	w.countEnds()
	require.Equal(t, "cancelled", w.status(handled))
	refused(handled, idle)

	outer := w.open("ended")
	inner := get[int64](w, `SELECT dispatcherd.open_batch('{"type": "inner"}', 'failed', parent => $1)`, outer)
	w.seal(inner)
	w.seal(outer)
	w.countEnds()
	w.end(contract.Succeeded, outer)
	w.countEnds()
	refused(outer, idle)

	batch := w.open("done")
	members := w.members(batch, 2)
	w.seal(batch)
	w.end(contract.FailedFinal, members...)
	w.countEnds()
	require.Equal(t, 1, w.retry(members[0])) // its message is not counted yet
	r, err = w.askRetry(batch)
	require.NoError(t, err)
	require.Equal(t, contract.RetriedTree{Changed: 2, Skipped: 1, Why: []string{"1, because they have been retried alone"}}, r)
}

// A job of what is being cancelled is not retried: it would be cancelled again. So it stays a member, and a retry of the batch runs it.
func TestJobIsNotRetriedWhileItsBatchIsBeingCancelled(t *testing.T) {
	w := newWorld(t)
	outer := w.open("done")
	inner := get[int64](w, `SELECT dispatcherd.open_batch('{"type": "inner"}', 'done', parent => $1)`, outer)
	failed := w.members(inner, 1)
	members := w.members(outer, 2)
	w.seal(inner)
	w.seal(outer)
	w.end(contract.FailedFinal, members[0], failed[0])
	w.countEnds()
	running := w.claim(members[1])
	w.cancelTree(outer)
	w.countEnds()
	require.False(t, w.batch(outer).Ended, "a member runs")
	err := claim.Jobs{DB: w.db}.Retry(t.Context(), dispatcherd.JobID(members[0]))
	require.ErrorContains(t, err, fmt.Sprintf("%d, to which it belongs, is being cancelled: retry it afterwards", outer))
	_, err = w.askRetry(inner)
	require.ErrorContains(t, err, fmt.Sprintf("batch %d, of which it is a member, is being cancelled: retry it afterwards", outer))

	w.finish(running, contract.Cancelled, "")
	w.countEnds()
	require.True(t, w.batch(outer).Ended)
	require.Equal(t, 1, w.retry(members[0]))
	w.end(contract.Succeeded, members[0])
	w.countEnds()
	w.retryTree(outer)
	w.countEnds()
	for _, id := range []int64{members[1], failed[0], inner, outer} {
		require.Equal(t, "pending", w.status(id), "job %d", id)
		w.end(contract.Succeeded, id)
		w.countEnds()
	}
	b := w.batch(outer)
	require.Equal(t, []int{0, 3, 0, 0}, []int{*b.Open, b.Done, b.Failed, b.Cancelled})
}

// The callback of a batch or flow is pending or running. A retry would run it twice at a time, so it is refused.
func TestRetryIsRefusedWhileTheCallbackIsLive(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	member := w.members(batch, 1)
	w.seal(batch)
	flow, n := w.flow(`{"callback": {"type": "c", "run_when": "ended"}, "nodes": [{"name": "a", "type": "x"}]}`)
	for id, failed := range map[int64]int64{batch: member[0], flow: n["a"]} {
		w.end(contract.FailedFinal, failed)
		w.countEnds()
		refused := func(status string) {
			require.Equal(t, status, w.status(id))
			_, err := w.askRetry(id)
			var e *joins.RefusedError
			require.ErrorAs(t, err, &e)
			require.Equal(t, "callback_has_ended", e.Rule)
			require.Contains(t, e.Error(), strconv.FormatInt(id, 10))
			require.Equal(t, "failed", w.status(failed))
		}
		refused("pending")
		won := w.claim(id)
		refused("running")
		w.finish(won, contract.Succeeded, "")
		w.countEnds()
		require.Equal(t, 1, w.retryTree(id), "the callback is done, and stays as it is")
		w.end(contract.Succeeded, failed)
		w.countEnds()
		require.True(t, w.batch(id).Ended)
		require.Equal(t, "done", w.status(id))
	}
}

// The callback has failed, and its end is not counted yet. The retry counts it first. Otherwise the next
// settlement would cancel the members, because their callback has ended.
func TestRetryCountsTheEndOfTheCallbackFirst(t *testing.T) {
	w := newWorld(t)
	for _, outcome := range []contract.Outcome{contract.FailedFinal, contract.Cancelled} {
		batch := w.open("ended")
		members := w.members(batch, 2)
		w.seal(batch)
		w.end(contract.FailedFinal, members...)
		w.countEnds()
		w.end(outcome, batch)
		require.Equal(t, 1, get[int](w, `SELECT count(*) FROM dispatcherd.ends`))
		require.Equal(t, 3, w.retryTree(batch))
		w.countEnds()
		require.Equal(t, "pending", w.status(members[0]))
		require.Equal(t, "pending", w.status(members[1]))
		require.Equal(t, "waiting", w.status(batch))
		w.end(contract.Succeeded, members...)
		w.countEnds()
		require.Equal(t, "pending", w.status(batch))
		require.Equal(t, 2, w.batch(batch).Done)
	}
}

// Of several jobs with one unique key, the newest is retried. A job whose key a live job has is not.
func TestNewestJobOfAUniqueKeyIsRetried(t *testing.T) {
	w := newWorld(t)
	var ids []int64
	for range 3 {
		id := get[int64](w, `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('x', 'k') RETURNING id`)
		w.end(contract.FailedFinal, id)
		ids = append(ids, id)
	}
	other := w.insert()
	w.end(contract.FailedFinal, other)
	require.Equal(t, 2, w.retry(append(ids, other)...))
	require.Equal(t, []string{"failed", "failed", "pending", "pending"},
		[]string{w.status(ids[0]), w.status(ids[1]), w.status(ids[2]), w.status(other)})
	require.Zero(t, w.retry(ids[:2]...))
	require.Equal(t, "k", get[string](w, `SELECT unique_key FROM dispatcherd.jobs WHERE id = $1`, ids[2]))
}

// A retried batch keeps the unique keys of its members. A member whose key another live job has stays as it is.
func TestRetriedBatchKeepsUniqueKeys(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	var members []int64
	for _, key := range []string{"free", "taken"} {
		members = append(members,
			get[int64](w, `SELECT dispatcherd.insert_member($1, jsonb_build_object('type', 'x', 'unique_key', $2::text))`, batch, key))
	}
	w.seal(batch)
	w.end(contract.FailedFinal, members...)
	w.countEnds()
	w.end(contract.Succeeded, batch)
	w.countEnds()
	live := get[int64](w, `INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('x', 'taken') RETURNING id`)
	require.Equal(t, 1, w.retryTree(batch))
	require.Equal(t, []string{"pending", "failed", "pending"}, []string{w.status(members[0]), w.status(members[1]), w.status(live)})
	require.Equal(t, "jobs_live_unique_key", w.refused(`INSERT INTO dispatcherd.jobs (type, unique_key) VALUES ('x', 'free')`).ConstraintName)
	b := w.batch(batch)
	require.Equal(t, []int{1, 0, 1}, []int{*b.Open, b.Done, b.Failed})
	w.end(contract.Succeeded, members[0])
	w.countEnds()
	b = w.batch(batch)
	require.Equal(t, []int{0, 1, 1}, []int{*b.Open, b.Done, b.Failed})
	require.True(t, b.Ended)
}

// Nodes and callbacks that never ran wait for others. A retry of the job alone would run them too early, so they are left out. Retries of
// the flow or batch run them. A node without dependencies waits for none.
func TestJobsThatWaitForOthersAreNotRetriedAlone(t *testing.T) {
	w := newWorld(t)
	flow, n := w.flow(
		`{"callback": {"type": "c"}, "nodes": [
			{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}, {"name": "c", "type": "x"}]}`,
	)
	batch := w.open("done")
	member := w.members(batch, 1)
	w.seal(batch)
	w.exec(`SELECT dispatcherd.end_idle(ARRAY[$1::bigint], 'cancelled', session_user, NULL)`, n["c"])
	w.end(contract.FailedFinal, n["a"], member[0])
	w.countEnds()
	instead := map[int64]string{n["b"]: fmt.Sprint("flow ", flow), flow: fmt.Sprint("flow ", flow), batch: fmt.Sprint("batch ", batch)}
	for id := range instead {
		require.Equal(t, "cancelled", w.status(id))
		require.Zero(t, w.retry(id))
		require.Equal(t, "cancelled", w.status(id))
		err := claim.Jobs{DB: w.db}.Retry(t.Context(), dispatcherd.JobID(id))
		require.ErrorContains(t, err, "it must wait for other jobs: retry "+instead[id])
	}
	require.Equal(t, 1, w.retry(n["b"], n["c"], flow), "c")
	require.Equal(t, "pending", w.status(n["c"]))
	require.Equal(t, 2, w.retryTree(batch))
	require.Equal(t, "waiting", w.status(batch))
}

// A node got the results of its dependencies, and then failed. After the retry of the flow, inputs, missing and
// unsuccessful are those of the dependencies as they are now.
func TestRetriedNodeGetsItsInputsAgain(t *testing.T) {
	w := newWorld(t)
	flow, n := w.flow(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x"}, {"name": "c", "type": "x"},
		{"name": "sum", "type": "x", "payload": {"n": 1}, "after": ["a", "b", "c"], "run_when": "ended", "takes_results": true}]}`)
	payload := func() string {
		return get[string](w, `SELECT payload::text FROM dispatcherd.jobs WHERE id = $1`, n["sum"])
	}
	w.finish(w.claim(n["a"]), contract.Succeeded, `1`)
	w.end(contract.FailedFinal, n["b"])
	w.finish(w.claim(n["c"]), contract.Succeeded, `3`)
	w.exec(`CREATE TABLE public.kept (LIKE dispatcherd.jobs)`)
	w.exec(`WITH gone AS (DELETE FROM dispatcherd.jobs WHERE id = $1 RETURNING *) INSERT INTO public.kept SELECT * FROM gone`, n["c"])
	w.countEnds()
	require.JSONEq(t, `{"n": 1, "inputs": {"a": 1, "b": null, "c": null}, "missing": ["c"], "unsuccessful": {"b": "failed"}}`, payload())
	w.end(contract.FailedFinal, n["sum"])
	w.countEnds()
	w.exec(`INSERT INTO dispatcherd.jobs SELECT * FROM public.kept`)
	require.Equal(t, 2, w.retryTree(flow))
	w.finish(w.claim(n["b"]), contract.Succeeded, `2`)
	w.countEnds()
	require.Equal(t, "pending", w.status(n["sum"]))
	require.JSONEq(t, `{"n": 1, "inputs": {"a": 1, "b": 2, "c": 3}}`, payload())
}

// A node of a flow that has ended is retried alone, so it no longer belongs to the flow. It fails again. The retry of the flow runs it as a
// part of the flow, and the flow ends.
func TestFlowEndsAfterTheRetryOfANodeThatHadLeftIt(t *testing.T) {
	w := newWorld(t)
	for _, second := range []contract.Outcome{contract.FailedFinal, contract.Cancelled} {
		flow, n := w.flow(`{"callback": {"type": "c"}, "nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}]}`)
		w.end(contract.FailedFinal, n["a"])
		w.countEnds()
		require.True(t, w.batch(flow).Ended)
		require.Equal(t, 1, w.retry(n["a"]))
		w.end(second, n["a"])
		w.countEnds()
		w.retryTree(flow)
		for _, id := range []int64{n["a"], n["b"], flow} {
			require.Equal(t, "pending", w.status(id))
			w.end(contract.Succeeded, id)
			w.countEnds()
		}
		b := w.batch(flow)
		require.Equal(t, []int{2, 0, 0}, []int{b.Done, b.Failed, b.Cancelled})
		require.True(t, b.Ended)
	}
}

// The callback of a batch is a member of another batch. The retry of the inner batch makes its callback wait
// again, so the outer batch waits for it, too. If the outer batch has ended, it counts the new end, but its callback does not run again.
func TestRetriedCallbackCountsAgainInTheOuterBatch(t *testing.T) {
	w := newWorld(t)
	for _, over := range []bool{false, true} {
		outer := w.open("ended")
		inner := get[int64](w, `SELECT dispatcherd.open_batch('{"type": "inner"}', 'ended', parent => $1)`, outer)
		other, member := w.members(outer, 1), w.members(inner, 1)
		w.seal(inner)
		w.seal(outer)
		for _, job := range []int64{member[0], inner} {
			w.end(contract.FailedFinal, job)
			w.countEnds()
		}
		if over {
			w.end(contract.Succeeded, other...)
			w.countEnds()
		}
		before := w.batch(outer)
		require.Equal(t, over, before.Ended)
		require.Equal(t, 2, w.retryTree(inner))
		if !over {
			require.Equal(t, 2, *w.batch(outer).Open)
		}
		for _, job := range []int64{member[0], inner} {
			w.end(contract.Succeeded, job)
			w.countEnds()
		}
		if over {
			now := w.batch(outer)
			require.Equal(t, []int{0, 2, 0}, []int{*now.Open, now.Done, now.Failed}, "it keeps its members")
			require.Equal(t, "pending", w.status(outer), "the callback runs once")
			continue
		}
		require.Equal(t, "waiting", w.status(outer), "a member is pending")
		require.Equal(t, 1, *w.batch(outer).Open)
		w.end(contract.Succeeded, other...)
		w.countEnds()
		require.Equal(t, "pending", w.status(outer))
		require.Equal(t, []int{2, 0}, []int{w.batch(outer).Done, w.batch(outer).Failed})
	}
}

// A parent failed, and its child was cancelled. The parent is retried and inserts a child, which lives, whether
// the end of the former run is counted before or after that. At the end of the second run it is cancelled.
func TestRetriedParentInsertsChildren(t *testing.T) {
	w := newWorld(t)
	for _, counted := range []string{"before the retry", "before the child", "after the child"} {
		parent := w.insert()
		won := w.claim(parent)
		former := w.spawn(won[0])
		w.finish(won, contract.FailedFinal, "")
		if counted == "before the retry" {
			w.countEnds()
			require.Equal(t, "cancelled", w.status(former))
		}
		require.Equal(t, 1, w.retry(parent), counted)
		won = w.claim(parent)
		if counted == "before the child" {
			w.countEnds()
		}
		child := w.spawn(won[0])
		w.countEnds()
		require.Equal(t, "pending", w.status(child), counted)
		require.Empty(t,
			get[string](w, `SELECT concat(cancelled_by, sealed_at, ended_at, open) FROM dispatcherd.batches WHERE id = $1`, parent),
			counted)
		w.finish(won, contract.Succeeded, "")
		w.countEnds()
		require.Equal(t, "cancelled", w.status(child), counted)
		require.Equal(t, "cancelled", w.status(former), counted)
		require.True(t, w.batch(parent).Ended, counted)
	}
}

// A batch is cancelled while a retry goes through its members in portions. Those that run again already are cancelled, and the batch ends.
func TestCancellationDuringARetryEndsTheBatch(t *testing.T) {
	w := newWorld(t)
	id := w.open("ended")
	members := w.members(id, 200)
	w.seal(id)
	w.end(contract.FailedFinal, members...)
	w.countEnds()
	w.end(contract.Succeeded, id)
	w.countEnds()
	_, err := w.askRetry(id)
	require.NoError(t, err)
	_, err = w.Step(t.Context(), dispatcherd.JobID(id), flow.Limits{Items: 1, Bytes: 1000})
	require.NoError(t, err)
	require.Equal(t, "retry", get[string](w, `SELECT walk FROM dispatcherd.batches WHERE id = $1`, id), "some members are left")
	w.cancelTree(id)
	w.countEnds()
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.jobs
		WHERE status IN ('waiting', 'pending') OR parent IS NULL AND id <> $1`, id))
	require.Equal(t, "0 t", get[string](w, `SELECT concat_ws(' ', open, ended_at IS NOT NULL) FROM dispatcherd.batches WHERE id = $1`, id))
}
