package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// withoutPolling makes polls so rare that jobs are found only by notifications.
func withoutPolling(cfg daemon.Config) daemon.Config {
	cfg.Core.Poll, cfg.Core.PollUnsubscribed = time.Hour, time.Hour
	return cfg
}

// Many producers notify at the same time, so that the notification gate is throttled for a
// while.
func TestJobsOfManyProducersAreFoundWhileThrottled(t *testing.T) {
	const producers, each = 8, 250
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		h := w.start(withoutPolling(w.config(name)))
		w.worker(name, h.cfg.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
		h.awaitSlots(4)
	}
	var all sync.WaitGroup
	for range producers {
		all.Go(func() {
			for range each {
				if _, err := w.jobs.Insert(t.Context(), claim.New{Type: "x"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: producers * each})
	w.oneByOne(20)
}

// oneByOne inserts the next job when the last one is done.
func (w *world) oneByOne(rounds int) {
	w.t.Helper()
	for range rounds {
		w.await(w.insert("x", work{}), dispatcherd.Done)
	}
}

// The worker of a dispatcher dies, and the dispatcher has no other slot for the job. Another
// dispatcher finds the job without polling.
func TestJobOfAKilledWorkerStartsOnAnotherDispatcher(t *testing.T) {
	const kills = 5
	w := newWorld(t)
	hosts := []*host{}
	for _, name := range []string{"a", "b"} {
		cfg := w.config(name)
		cfg.Core.Limits.Crashes = 10 * kills
		hosts = append(hosts, w.start(cfg))
	}
	launch := func(i int) *child {
		h := hosts[i%2]
		c := w.worker(fmt.Sprint("w", i), h.cfg.WorkerSocket, oneSlot("x"))
		eventually(t, func() bool { return h.gauges().Slots == 1 }, func() string { return "a slot" })
		return c
	}
	id := w.insert("x", work{Do: "gate"})
	victim := launch(0)
	w.seen.start(t, id, 1)
	var took []time.Duration
	for i := range kills {
		next := launch(i + 1)
		w.oneByOne(1) // the cursor of the other dispatcher is past the job
		at := time.Now()
		victim.kill()
		start := w.seen.start(t, id, dispatcherd.Attempt(i+2))
		require.Equal(t, next.pid(), start.PID)
		took = append(took, time.Unix(0, start.At).Sub(at))
		eventually(t, func() bool { return hosts[i%2].gauges().Slots == 0 }, func() string { return "no slot" })
		victim = next
	}
	w.seen.open(t, w.seen.start(t, id, kills+1))
	w.await(id, dispatcherd.Done)
	slices.Sort(took)
	t.Logf(
		"from kill -9 to the start on another dispatcher, %d kills: p50 %v, p90 %v, max %v",
		kills,
		took[kills/2],
		took[kills*9/10],
		took[kills-1],
	)
	require.Less(t, took[kills-1], 10*time.Second)
}

// A retried job is found without polling.
func TestRetriedJobIsFoundWithoutPolling(t *testing.T) {
	w := newWorld(t)
	h := w.start(withoutPolling(w.config("d")))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	id := w.insertNew(claim.New{Type: "x", MaxAttempts: 1}, work{Do: "fail", Times: 1, Error: "once"})
	w.await(id, dispatcherd.Failed)
	h.awaitSlots(1)
	got := invocation{args: []string{"--database-url", w.dsn, "job", "retry", fmt.Sprint(id)}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	w.await(id, dispatcherd.Done)
}

// Workers that register while jobs wait get these jobs at once.
func TestRegisteredTypeGetsWaitingJobsAtOnce(t *testing.T) {
	w := newWorld(t)
	h := w.start(withoutPolling(w.config("d")))
	for _, typ := range []string{"a", "b", "c"} {
		id := w.insert(typ, work{})
		c := w.worker("w", h.cfg.WorkerSocket, oneSlot(typ))
		w.await(id, dispatcherd.Done)
		c.kill()
		h.awaitSlots(0)
	}
	id := w.insert("a", work{}) // slots for the type are registered, removed and registered again
	w.worker("w", h.cfg.WorkerSocket, oneSlot("a"))
	w.await(id, dispatcherd.Done)
}

// While the notification queue of the server is too full, no insert fails, and polling finds
// the jobs. The metrics name the session that has to end.
func TestJobsAreFoundWhileTheNotificationQueueIsFull(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	blocker, err := w.db.Acquire(t.Context())
	require.NoError(t, err)
	defer blocker.Release()
	_, err = blocker.Exec(t.Context(), `BEGIN`)
	require.NoError(t, err)
	mayNotify := func(may string) {
		_, err := w.db.Exec(t.Context(), `CREATE OR REPLACE FUNCTION dispatcherd.may_notify() RETURNS boolean LANGUAGE sql AS 'SELECT `+may+`'`)
		require.NoError(t, err)
	}
	shows := func(name string, want float64) {
		eventually(t, func() bool { return metricsOn(t, cfg)[name] == want }, func() string { return fmt.Sprint(name, " = ", want) })
	}
	shows("dispatcherd_notifications_arrive", 1)
	mayNotify("false")
	shows("dispatcherd_notifications_arrive", 0)
	eventually(
		t,
		func() bool { return w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE armed`) == 0 },
		func() string { return "no subscription" },
	)
	w.oneByOne(3)
	got := h.caller().ask("POST", "/v1/jobs", `{"type":"x","payload":{}}`)
	require.Equal(t, 201, got.StatusCode, got.body)
	eventually(
		t,
		func() bool { return metricsOn(t, cfg)["dispatcherd_notification_queue_blocking_pid"] > 0 },
		func() string { return "a session that blocks the queue" },
	)
	require.Contains(t, h.log.text(), "a transaction is open while the notification queue is too full")
	mayNotify("true")
	shows("dispatcherd_notifications_arrive", 1)
	shows("dispatcherd_notification_queue_blocking_pid", 0)
	w.oneByOne(3)
	_, err = blocker.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
}
