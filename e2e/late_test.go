package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
)

// withShortHeartbeatTimeout shortens the time after which a silent worker counts as lost. The
// time is still long enough for a worker that answers late because the machine stalled.
func withShortHeartbeatTimeout(cfg daemon.Config) daemon.Config {
	cfg.Workers.HeartbeatInterval, cfg.Workers.HeartbeatTimeout = 500*time.Millisecond, 3*time.Second
	return cfg
}

// A worker process is stopped with SIGSTOP, so the dispatcher ends its session. Its handler
// continues after SIGCONT.
func TestJobOfAStoppedWorkerRunsOnAnotherAndItsLateResultIsDropped(t *testing.T) {
	w := newWorld(t)
	h := w.start(withShortHeartbeatTimeout(w.config("d")))
	first := w.worker("first", h.cfg.WorkerSocket, oneSlot("x"))
	id := w.insert("x", work{Do: "stubborn"})
	running := w.seen.start(t, id, 1)
	first.signal(t, syscall.SIGSTOP)
	w.worker("second", h.cfg.WorkerSocket, oneSlot("x"))
	second := w.seen.start(t, id, 2)
	w.seen.open(t, running)
	first.signal(t, syscall.SIGCONT)
	w.seen.await(t, "the end of the first attempt", func(s sighting) bool { return s.What == "end" && s.Attempt == 1 })
	h.awaitSlotsRegistered(2) // the first worker is connected again and its slot is free
	require.Equal(t, dispatcherd.Running, w.get(id).Status)
	w.seen.open(t, second)
	require.JSONEq(t, `{"by":"second","attempt":2}`, string(w.await(id, dispatcherd.Done).Result))
	h.awaitSlots(2)
}

func (h *host) awaitSlotsRegistered(n int) {
	h.t.Helper()
	var g actor.Gauges
	eventually(h.t, func() bool { g = h.gauges(); return g.Slots == n }, func() string { return fmt.Sprintf("%d slots; %+v", n, g) })
}
