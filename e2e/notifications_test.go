package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// oneByOne inserts the next job when the last one is done.
func (w *world) oneByOne(rounds int) {
	w.t.Helper()
	for range rounds {
		w.await(w.insert("x", work{}), dispatcherd.Done)
	}
}

// While the notification queue of the server is too full, no insert fails, and polling finds
// the jobs. The metrics name the session that has to end.
func TestJobsAreFoundWhileTheNotificationQueueIsFull(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, pgtest.Alone(t))
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
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE armed`) == 0 },
		func() string { return "no subscription" })
	w.oneByOne(3)
	got := h.caller().ask("POST", "/v1/jobs", `{"type":"x","payload":{}}`)
	require.Equal(t, 201, got.StatusCode, got.body)
	eventually(t, func() bool { return metricsOn(t, cfg)["dispatcherd_notification_queue_blocking_pid"] > 0 },
		func() string { return "a session that blocks the queue" })
	require.Contains(t, h.log.text(), "a transaction is open while the notification queue is too full")
	mayNotify("true")
	shows("dispatcherd_notifications_arrive", 1)
	shows("dispatcherd_notification_queue_blocking_pid", 0)
	w.oneByOne(3)
	_, err = blocker.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
}
