package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Attack 2: a dispatcher is killed between the end of the last member and its count, which a lock has delayed.
// Another dispatcher, which gets no notifications, learns of the record from its heartbeat. It counts the end
// once and runs the callback.
func TestHeartbeatFindsTheEndsOfAKilledDispatcher(t *testing.T) {
	w := newWorld(t)
	a, b := w.config("a"), w.config("b")
	b.Listen = false
	killed := w.serve(a)
	w.worker("a", a.WorkerSocket, scriptSlots{N: 1, Types: []string{"x"}})
	batch := w.id(`SELECT dispatcherd.open_batch('{"type": "callback"}', 'ended')`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, parent) SELECT 'x', $1 FROM generate_series(1, 2)`, batch)
	w.exec(`SELECT dispatcherd.seal_batch($1)`, batch)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), `SELECT FROM dispatcherd.batches WHERE id = $1 FOR NO KEY UPDATE`, batch)
	require.NoError(t, err)
	eventually(t, func() bool {
		return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE parent = $1 AND status = 'done'`, batch) == 2
	}, func() string { return "the ends of the members" })
	killed.kill()
	require.NoError(t, tx.Rollback(t.Context()))
	require.NotZero(t, w.number(`SELECT count(*) FROM dispatcherd.ends`))
	require.Equal(t, dispatcherd.Waiting, w.get(batch).Status)

	w.start(b)
	w.worker("b", b.WorkerSocket, scriptSlots{N: 1, Types: []string{"callback"}})
	job := w.await(batch, dispatcherd.Done)
	require.EqualValues(t, 1, job.Attempt)
	require.Equal(t, 2, batchOf(t, job).Done)
	require.Len(t, w.seen.ofJobs("start")[batch], 1)
}

// The default isolation level of a database is another than that of Postgres. The API and settlements choose the level that they need.
func TestFlowsOnADatabaseWithAnotherIsolationLevel(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			w := newWorld(t)
			w.exec(
				`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''` + level + `''', current_database()); END $$`,
			)
			w.db.Reset()
			h, _ := w.startCallee(1)
			batch := w.id(`SELECT dispatcherd.open_batch('{"type": "never"}', 'ended')`)
			w.exec(`INSERT INTO dispatcherd.jobs (type, parent) VALUES ('never', $1)`, batch)
			for _, command := range []string{"batch seal", "batch cancel", "batch retry", "flow repair", "batch cancel"} {
				got := h.onAPI("", strings.Fields(fmt.Sprint(command, " ", batch))...)
				require.Equal(t, exit.OK, got.code, "%s: %s", command, got.err)
			}
			w.await(batch, dispatcherd.Cancelled)
		})
	}
}

// Attack 11: a batch is never sealed. "job why" says so for its callback, and "batch list" lists it. "batch cancel" ends it.
func TestBatchThatIsNeverSealedIsExplainedAndCancelled(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, scriptSlots{N: 1, Types: []string{"x", "callback"}})
	batch := w.id(`SELECT dispatcherd.open_batch('{"type": "callback"}', 'ended', name => 'forgotten')`)
	member := w.id(`INSERT INTO dispatcherd.jobs (type, parent) VALUES ('x', $1) RETURNING id`, batch)
	w.await(member, dispatcherd.Done)
	require.Contains(t, w.why(h, batch), "Unsealed: its batch is not sealed, so members may follow")
	require.Contains(t, h.onAPI("", "batch", "list", "--state", "open").out, "forgotten")
	require.Equal(t, exit.OK, h.onAPI("", "batch", "cancel", fmt.Sprint(batch)).code)
	w.await(batch, dispatcherd.Cancelled)
	require.NotContains(t, h.onAPI("", "batch", "list", "--state", "open").out, "forgotten")
	require.Equal(t, exit.Conflict, h.onAPI("", "job", "insert", "--type", "x", "--parent", fmt.Sprint(batch)).code)
}
