package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// promptly bounds the time from the start of a dispatcher to the end of the first job on a busy
// machine. Without the lock file the time would be the lease, which is a minute in these tests.
const promptly = 10 * time.Second

// living returns the number of dispatchers whose lease no successor has ended.
func (w *world) living() int {
	w.t.Helper()
	return w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE incarnation IS NOT NULL AND lost_at IS NULL`)
}

// A dispatcher is killed with kill -9 and started again, with and without another dispatcher.
// The running jobs continue, and a new job starts at once.
func TestSuccessorOfAKilledDispatcherTakesOverAtOnce(t *testing.T) {
	for _, peers := range []int{0, 1} {
		t.Run(fmt.Sprint("with ", peers, " others"), func(t *testing.T) {
			w := newWorldAlone(t)
			cfg := w.config("d")
			cfg.Lease = time.Minute
			process := w.serve(cfg)
			for i := range peers {
				other := w.config(fmt.Sprint("peer", i))
				other.Lease = time.Minute
				w.serve(other)
			}
			w.worker("w", cfg.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
			ids := w.gated(2)
			process.kill()
			started := time.Now()
			process = w.serve(cfg)
			w.await(w.insert("x", work{}), dispatcherd.Done)
			took := time.Since(started)
			t.Logf("from the start to the end of a new job: %v", took)
			require.Less(t, took, promptly)
			require.Contains(t, process.errors.text(), "the previous dispatcher on this socket was killed")
			require.Equal(t, 1+peers, w.living())
			for _, id := range ids {
				w.seen.open(t, w.seen.start(t, id, 1))
			}
			w.requireOnce(ids)
		})
	}
}
