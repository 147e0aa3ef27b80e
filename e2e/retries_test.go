package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
)

// A member of a batch that has ended, and a node of such a flow, are retried alone and are done. Their batch and flow can still be retried:
// then what waited for the jobs runs, and the answers count these jobs.
func TestJobsAreRetriedAloneAndThenTheirBatchAndFlow(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	outer := w.id(`SELECT dispatcherd.open_batch('{"type": "x"}')`)
	inner := w.id(`SELECT dispatcherd.open_batch('{"type": "x"}', parent => $1)`, outer)
	member := w.insertNew(claim.New{Type: "x", Parent: inner, MaxAttempts: 1}, work{Do: "fail", Times: 1, Error: "no paper"})
	w.exec(`SELECT dispatcherd.seal_batch($1), dispatcherd.seal_batch($2)`, inner, outer)
	flow := w.id(`SELECT (dispatcherd.insert_flow($1) ->> 'id')::bigint`, `{"callback": {"type": "x"}, "nodes": [
		{"name": "a", "type": "x", "max_attempts": 1, "payload": {"do": "fail", "times": 1, "error": "no paper"}},
		{"name": "b", "type": "x", "after": ["a"]}, {"name": "c", "type": "x", "after": ["a"], "run_when": "failed"}]}`)
	node := func(name string) dispatcherd.JobID {
		return w.id(`SELECT id FROM dispatcherd.nodes WHERE name = $1`, name)
	}
	a, b, c := node("a"), node("b"), node("c")
	for _, id := range []dispatcherd.JobID{inner, outer, b, flow} {
		w.await(id, dispatcherd.Cancelled)
	}
	w.await(c, dispatcherd.Done)
	require.Regexp(t, `last error +no paper\n`, h.shown("job why %d", a))
	require.Regexp(t, fmt.Sprintf(`cancelled by +flow\nlast error +dependency %d failed\n`, a), h.shown("job why %d", b))

	h.shown("job retry %d %d", member, a)
	w.await(member, dispatcherd.Done)
	w.await(a, dispatcherd.Done)
	require.Regexp(t, `members +0 open, 1 done, 0 failed, 0 cancelled\n`, h.shown("batch show %d", inner))
	require.Equal(t, dispatcherd.Cancelled, w.get(inner).Status, "callbacks run again after batch retry and flow retry only")
	require.Equal(t, fmt.Sprintf("batch %d: 2 jobs retried\n", outer), h.shown("batch retry %d", outer), "the two callbacks")
	require.Equal(t, fmt.Sprintf("flow %d: 2 jobs retried\n", flow), h.shown("flow retry %d", flow), "b and the callback")
	for _, id := range []dispatcherd.JobID{inner, outer, b, flow} {
		w.await(id, dispatcherd.Done)
	}
	require.Equal(t, 3, batchOf(t, w.get(flow)).Done)
}

// A run of an interval is retried, also after its end. While it waits, no further run is inserted.
func TestRetriedRunOfAnIntervalIsTheOnlyOne(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, every, type, payload) VALUES ('i', 'interval', '1 second', 'unknown', '{}')`)
	w.awaitTicks("i", "run", 1)
	run := w.number(`SELECT max(id) FROM dispatcherd.jobs`)
	h.shown("job cancel %d", run)
	h.shown("job retry %d", run)
	w.await(dispatcherd.JobID(run), dispatcherd.Pending)
	eventually(t, func() bool {
		return w.number(`SELECT extract(epoch FROM clock_timestamp() - run_at)::int FROM dispatcherd.jobs WHERE id = $1`, run) >= 3
	}, func() string { return "three seconds" })
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	h.shown("job cancel %d", run)
	w.awaitTicks("i", "run", 2)
}

// Another job has the unique key of a failed job. job why names it, and a retry of all failed jobs says why it leaves the job out.
func TestHolderOfAUniqueKeyIsNamed(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	id := w.insertNew(claim.New{Type: "unknown", UniqueKey: "invoice 7"}, work{})
	require.Regexp(t, `unique key +invoice 7\n`, h.shown("job why %d", id))
	h.shown("job cancel %d", id)
	require.Regexp(t, `cancelled by +\w`, h.shown("job why %d", id))
	other := w.insertNew(claim.New{Type: "unknown", UniqueKey: "invoice 7"}, work{})
	require.Regexp(t, fmt.Sprintf(`unique key +invoice 7\n +job %d has it, so this job cannot be retried\n`, other), h.shown("job why %d", id))
	got := h.onAPI("", "job", "retry", "--type", "unknown", "--yes")
	require.Equal(t, "0 jobs retried\n", got.out)
	require.Contains(t, got.err, fmt.Sprintf(`job %d is cancelled: job %d has its unique key "invoice 7"`, id, other))
}
