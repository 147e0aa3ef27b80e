package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// id returns the id that a function returns.
func (w *world) id(sql string, args ...any) (id dispatcherd.JobID) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow(w.t.Context(), sql, args...).Scan(&id))
	return id
}

// batchOf is what a callback is told.
func batchOf(t *testing.T, job contract.Job) (b struct{ Total, Done, Failed, Cancelled int }) {
	t.Helper()
	var payload struct{ Batch json.RawMessage }
	require.NoError(t, json.Unmarshal(job.Payload, &payload))
	require.NoError(t, json.Unmarshal(payload.Batch, &b), string(job.Payload))
	return b
}

// Members are inserted in several transactions, by INSERT and by COPY. The callback runs once, after the last of them.
func TestCallbackOfABatchRunsOnceAfterAllMembers(t *testing.T) {
	w := newWorld(t)
	a, b := w.config("a"), w.config("b")
	w.start(a)
	w.start(b)
	w.worker("a", a.WorkerSocket, scriptSlots{N: 4, Types: []string{"x", "callback"}})
	w.worker("b", b.WorkerSocket, scriptSlots{N: 4, Types: []string{"x", "callback"}})
	const batches, members = 20, 100
	var ids []dispatcherd.JobID
	for i := range batches {
		id := w.id(`SELECT dispatcherd.open_batch('{"type": "callback", "payload": {"n": 1}}', 'ended', name => $1)`, fmt.Sprint("batch ", i))
		ids = append(ids, id)
		for range members / 20 {
			w.exec(`INSERT INTO dispatcherd.jobs (type, parent) SELECT 'x', $1 FROM generate_series(1, 20)`, id)
		}
		w.exec(`SELECT dispatcherd.seal_batch($1)`, id)
	}
	for _, id := range ids {
		job := w.await(id, dispatcherd.Done)
		require.Equal(t, members, batchOf(t, job).Total)
		require.Equal(t, members, batchOf(t, job).Done)
	}
	require.Zero(
		t,
		w.number(`SELECT count(*) FROM dispatcherd.jobs c JOIN dispatcherd.jobs m ON m.parent = c.id WHERE m.finished_at > c.started_at`),
		"no callback runs early",
	)
	for id, runs := range w.seen.ofJobs("start") {
		require.Len(t, runs, 1, "job %d", id)
	}
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.ends`) == 0 },
		func() string { return "the ends of the callbacks are counted" })
}
