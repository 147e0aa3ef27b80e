package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
)

// A daemon with one worker has run a job with a key, a tick and a flow. Then nothing happens for half a minute. Postgres counts its own
// maintenance of tables, too.
func TestIdleDaemonMakesAtMostTwoCommitsPerSecond(t *testing.T) {
	if testing.Short() {
		t.Skip("it lasts 45 s")
	}
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Core.Retry = actor.DefaultConfig().Retry
	cfg.Lease, cfg.Heartbeat, cfg.CountPending = 30*time.Second, time.Second, 0
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys, payload) VALUES ('x', 'k', '{}')`)
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, once, type, payload) VALUES ('s', 'startup', 'ever', 'x', '{}')`)
	w.exec(`SELECT dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "x", "payload": {}},
		{"name": "b", "type": "x", "payload": {}, "after": ["a"]}]}')`)
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: 4})
	commits := func() int {
		return w.number(`SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`)
	}
	<-time.After(12 * time.Second) // until what follows the jobs is done, and the pauses have grown
	before := commits()
	<-time.After(30 * time.Second)
	rate := float64(commits()-before) / 30
	t.Logf("%.2f commits per second", rate)
	require.LessOrEqual(t, rate, 2.0)
}
