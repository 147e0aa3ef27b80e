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
// the jobs.
func TestJobsAreFoundWhileTheNotificationQueueIsFull(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, pgtest.Alone(t))
	cfg := w.config("d")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
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
	mayNotify("true")
	shows("dispatcherd_notifications_arrive", 1)
	w.oneByOne(3)
}
