package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// overSQL counts the instants at which jobs of one key ran whose cost exceeds a capacity: $1 the key, $2 the capacity. It reads
// only what the table says: when jobs started and ended.
const overSQL = `
WITH run AS (
	SELECT started_at, coalesce(finished_at, 'infinity') AS finished_at FROM dispatcherd.jobs, unnest(string_to_array(keys, ' ')) word
	WHERE split_part(word, '*', 1) = $1 AND started_at IS NOT NULL AND status <> 'pending'
), change AS (
	SELECT started_at AS at, 1 AS by FROM run UNION ALL SELECT finished_at, -1 FROM run
)
SELECT count(*) FROM (SELECT sum(by) OVER (ORDER BY at, by) AS n FROM change) s WHERE n > $2`

func (w *world) awaitDone(n int) {
	w.t.Helper()
	eventually(w.t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`) >= n }, func() string {
		return fmt.Sprintf("%d jobs that are done; there are %d", n, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`))
	})
}

// A key without a limit is a mutex: its jobs run one after the other, in the order of insertion.
func TestJobsOfOneKeyRunOneAtATime(t *testing.T) {
	w := newWorld(t)
	a, b := w.config("a"), w.config("b")
	w.start(a)
	w.start(b)
	w.worker("a", a.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
	w.worker("b", b.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', 'tenant:' || i % 3 FROM generate_series(1, 150) i`)
	w.awaitDone(150)
	for _, key := range []string{"tenant:0", "tenant:1", "tenant:2"} {
		require.Zero(t, w.number(overSQL, key, 1))
	}
	require.Zero(t,
		w.number(
			`SELECT count(*) FROM (SELECT id, keys, lag(started_at) OVER (PARTITION BY keys ORDER BY id) AS before, started_at
				FROM dispatcherd.jobs) j
				WHERE before > started_at`,
		),
		"jobs of a key start in the order of insertion",
	)
	require.Zero(t,
		w.number(
			`SELECT count(*) FROM (SELECT fence, lag(fence) OVER (PARTITION BY keys ORDER BY started_at) AS before FROM dispatcherd.jobs) j
				WHERE before >= fence OR fence IS NULL`,
		),
		"the fence grows",
	)
}

// A limit can be edited while jobs run: capacity, pause, weights.
func TestLimitsAreEditedWhileJobsRun(t *testing.T) {
	w := newWorld(t)
	a := w.config("a")
	w.start(a)
	w.worker("w", a.WorkerSocket, scriptSlots{N: 8, Types: []string{"x"}})
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity) VALUES ('k', 0), ('gpu', 8)`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', 'k' FROM generate_series(1, 20)`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', 'gpu*3' FROM generate_series(1, 20)`)
	w.awaitDone(20)
	require.Zero(t, w.number(overSQL, "gpu", 2), "two jobs of cost 3 fit into 8")
	require.Equal(t, 20, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE keys = 'k' AND status = 'pending'`), "the key is paused")
	w.exec(`UPDATE dispatcherd.limits SET capacity = 2 WHERE key = 'k'`)
	w.awaitDone(40)
	require.Zero(t, w.number(overSQL, "k", 2))
}

// The rate of starts holds in each window, by the clock of the database.
func TestRateLimitsStartsInEachWindow(t *testing.T) {
	w := newWorld(t)
	a := w.config("a")
	w.start(a)
	w.worker("w", a.WorkerSocket, scriptSlots{N: 8, Types: []string{"x"}})
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity, rate, per) VALUES ('api', NULL, 5, '500 ms')`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', 'api' FROM generate_series(1, 30)`)
	w.awaitDone(30)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs j WHERE (SELECT count(*) FROM dispatcherd.jobs o
		WHERE o.started_at >= j.started_at AND o.started_at < j.started_at + interval '500 ms') > 5`))
	took := w.number(`SELECT (extract(epoch FROM max(started_at) - min(started_at)) * 1000)::int FROM dispatcherd.jobs`)
	require.Less(t, took, 5000, "milliseconds")
	require.GreaterOrEqual(t, took, 2500)
}
