package e2e

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
)

// keyed inserts a job with keys.
func (w *world) keyed(keys string, p work) (id dispatcherd.JobID) {
	w.t.Helper()
	payload, err := json.Marshal(p)
	require.NoError(w.t, err)
	require.NoError(w.t,
		w.db.QueryRow(w.t.Context(), `INSERT INTO dispatcherd.jobs (type, keys, payload) VALUES ('x', $1, $2)
			RETURNING id`, keys, string(payload)).
			Scan(&id),
	)
	return id
}

// Attack 9: the worker of the holder is killed. The row is pending, its permit is free, and its next fence is higher.
func TestKilledWorkerReturnsItsPermit(t *testing.T) {
	w := newWorld(t)
	a := w.config("a")
	w.start(a)
	doomed := w.worker("doomed", a.WorkerSocket, oneSlot("x"))
	id := w.keyed("k", work{Do: "gate"})
	w.seen.start(t, id, 1)
	next := w.keyed("k", work{})
	fence := w.number(`SELECT fence FROM dispatcherd.jobs WHERE id = $1`, id)
	require.Positive(t, fence)
	doomed.kill()
	w.worker("w", a.WorkerSocket, scriptSlots{N: 2, Types: []string{"x"}})
	w.seen.open(t, w.seen.start(t, id, 2))
	w.await(id, dispatcherd.Done)
	w.await(next, dispatcherd.Done)
	again := w.number(`SELECT fence FROM dispatcherd.jobs WHERE id = $1`, id)
	require.Greater(t, again, fence)
	require.Greater(t, w.number(`SELECT fence FROM dispatcherd.jobs WHERE id = $1`, next), again)
	require.Zero(t, w.number(overSQL, "k", 1))
}

// Attacks 10, 11 and 14: the controller, which also holds permits of jobs, is killed, or stopped for longer than its lease, while jobs
// start and end. Another one takes over, and no key exceeds its limit, also when the former controller continues.
func TestLimitsHoldWhenTheControllerIsKilledOrStopped(t *testing.T) {
	for name, signals := range map[string][]syscall.Signal{"killed": {syscall.SIGKILL}, "stopped": {syscall.SIGSTOP, syscall.SIGCONT}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			processes, configs := map[string]*child{}, map[string]daemon.Config{}
			for _, name := range []string{"a", "b"} {
				cfg := w.config(name)
				cfg.Lease = time.Second
				processes[name], configs[name] = w.serve(cfg), cfg
				w.worker(name, cfg.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
			}
			w.exec(`INSERT INTO dispatcherd.limits (key, capacity, scope) VALUES ('two', 2, 'cluster'), ('here', 1, 'dispatcher')`)
			w.exec(
				`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', (ARRAY['two', 'one', 'here', 'two one'])[1 + i % 4]
					FROM generate_series(1, 200) i`,
			)
			w.awaitDone(20)
			var controller string
			require.NoError(t,
				w.db.QueryRow(t.Context(), `SELECT d.name FROM dispatcherd.controller c JOIN dispatcherd.dispatchers d ON d.id = c.dispatcher`).
					Scan(&controller),
			)
			processes[controller].signal(t, signals[0])
			if len(signals) == 1 {
				w.serve(configs[controller])
			} else {
				eventually(t, func() bool {
					return w.number(
						`SELECT count(*) FROM dispatcherd.controller c JOIN dispatcherd.dispatchers d ON d.id = c.dispatcher WHERE d.name <> $1`,
						controller,
					) == 1
				}, func() string { return "another controller" })
				processes[controller].signal(t, signals[1])
			}
			w.exec(
				`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', (ARRAY['two', 'one', 'here', 'two one'])[1 + i % 4]
					FROM generate_series(1, 40) i`,
			)
			w.awaitDone(240)
			require.Zero(t, w.number(overSQL, "two", 2))
			require.Zero(t, w.number(overSQL, "one", 1))
			require.Zero(t, w.number(overSQL, "here", 2), "one on each dispatcher")
		})
	}
}

// Attack 12: claims are in flight, and their outcome is unknown, because the connections of the dispatcher end.
// Each permit is kept until the claim is resolved.
func TestUnknownOutcomeKeepsThePermit(t *testing.T) {
	w := newWorld(t)
	a := w.config("a")
	w.start(a)
	w.worker("w", a.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', 'k:' || i % 4 FROM generate_series(1, 300) i`)
	for done := 50; done <= 250; done += 50 {
		w.awaitDone(done)
		w.exec(
			`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name ~ '^dispatcherd (claim|finish|limits)'`,
		)
	}
	w.awaitDone(300)
	for _, key := range []string{"k:0", "k:1", "k:2", "k:3"} {
		require.Zero(t, w.number(overSQL, key, 1))
	}
}

// Attack 14: the only dispatcher that may claim an admitted job is killed before it claims the job. The job runs on another
// dispatcher within five seconds, although the lease lasts for longer.
func TestPermitOfAKilledDispatcherReturnsWithinFiveSeconds(t *testing.T) {
	w := newWorld(t)
	a, b := w.config("a"), w.config("b")
	b.Lease = time.Minute
	w.start(a)
	w.worker("a", a.WorkerSocket, oneSlot("x"))
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity, scope) VALUES ('here', 1, 'dispatcher')`)
	holder := w.keyed("here", work{Do: "gate"})
	w.seen.start(t, holder, 1)
	doomed := w.serve(b)
	w.worker("b", b.WorkerSocket, oneSlot("x"))
	busy := w.gated(1)[0]
	w.seen.start(t, busy, 1)
	bound := w.keyed("here", work{})
	admitted := `SELECT count(*) FROM dispatcherd.jobs j JOIN dispatcherd.dispatchers d ON d.id = j.admitted_to
		WHERE j.id = $1 AND d.name = 'b'`
	eventually(t, func() bool { return w.number(admitted, bound) == 1 }, func() string { return "a job that only b may claim" })
	doomed.signal(t, syscall.SIGKILL)
	killed := time.Now()
	w.seen.open(t, w.seen.start(t, holder, 1))
	w.await(bound, dispatcherd.Done)
	require.Less(t, time.Since(killed), 5*time.Second)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE lost_at IS NOT NULL`))
}

// Attack 22: a job is cancelled while it is admitted and no slot is free. Its permit returns.
func TestCancelledAdmittedJobReturnsItsPermit(t *testing.T) {
	w := newWorld(t)
	a := w.config("a")
	h := w.start(a)
	w.worker("w", a.WorkerSocket, oneSlot("x"))
	busy := w.gated(1)[0]
	id, next := w.keyed("k", work{}), w.keyed("k", work{})
	eventually(t, func() bool { return w.number(`SELECT coalesce(fence, 0) FROM dispatcherd.jobs WHERE id = $1`, id) > 0 },
		func() string { return "an admitted job" })
	_, err := w.jobs.Cancel(t.Context(), id)
	require.NoError(t, err)
	w.seen.open(t, w.seen.start(t, busy, 1))
	w.await(next, dispatcherd.Done)
	require.NoError(t, h.stop())
}
