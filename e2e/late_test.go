package e2e

import (
	"fmt"
	"math/rand/v2"
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

// A silent worker loses its job to another worker. It reconnects and reports the result in its
// new session. The dispatcher answers stale, both before and after the second attempt has
// ended.
func TestLateResultIsStale(t *testing.T) {
	w := newWorld(t)
	h := w.start(withShortHeartbeatTimeout(w.config("d")))
	silent := helloRaw(t, h.cfg.WorkerSocket, "x")
	id := w.insert("x", work{Do: "gate"})
	require.Equal(t, id, silent.expect("job").Job)
	w.worker("second", h.cfg.WorkerSocket, oneSlot("x"))
	silent.refused("heartbeat_timeout", true, "") // it answered no ping
	second := w.seen.start(t, id, 2)

	back := helloRaw(t, h.cfg.WorkerSocket, "y").answering()
	back.done(id, 1, silent.nonce, `"late"`)
	back.refused("wrong_session", false, "another session")
	back.done(id, 1, back.nonce, `"late"`)
	stale := back.expect("stale")
	require.Equal(t, id, stale.Job)
	require.EqualValues(t, 1, stale.Attempt)
	back.done(id, 2, back.nonce, `"stolen"`)
	back.refused("not_held", false, "another session")
	require.Equal(t, dispatcherd.Running, w.get(id).Status)
	w.seen.open(t, second)
	w.await(id, dispatcherd.Done)
	for attempt := range dispatcherd.Attempt(3) {
		back.done(id, attempt+1, back.nonce, `"too late"`)
		require.Equal(t, "stale", back.next().Op)
	}
	require.JSONEq(t, `{"by":"second","attempt":2}`, string(w.get(id).Result))
	require.NoError(t, back.conn.Close())
	h.awaitSlots(1)
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

// Workers of different types are killed and started again in random order while jobs of all
// types run. Every worker has handlers for all types, so it can report a job of a type that it
// did not offer.
func TestWorkersGetOnlyTypesTheyOffer(t *testing.T) {
	const (
		jobs    = 2000
		changes = 30
	)
	types := []string{"a", "b", "c", "d"}
	offers := [][]scriptSlots{
		{{N: 3, Types: []string{"a"}}}, {{N: 2, Types: []string{"b", "c"}}, {N: 1, Types: []string{"a"}}},
		{{N: 2, Types: types}}, {{N: 3, Types: []string{"d"}}, {N: 1, Types: []string{"a", "c"}}},
	}
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Core.Limits.Crashes = 1000
	h := w.start(cfg)
	dice := rand.New(rand.NewPCG(1, 2))
	launch := func(i int) *child {
		return w.workerWith(workerScript{Socket: cfg.WorkerSocket, Name: fmt.Sprint("w", i), Slots: offers[i], Handles: types})
	}
	var crew []*child
	for i := range offers {
		crew = append(crew, launch(i))
	}
	for range changes {
		w.exec(
			`INSERT INTO dispatcherd.jobs (type) SELECT substr('abcd', 1 + (random() * 3)::int, 1) FROM generate_series(1, $1::int)`,
			jobs/changes,
		)
		i := dice.IntN(len(crew))
		seen, _ := w.seen.list()
		crew[i].kill()
		crew[i] = launch(i)
		eventually(t, func() bool { all, _ := w.seen.list(); return len(all) > len(seen) }, func() string { return "more work" })
	}
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: jobs / changes * changes})
	require.Empty(t, w.seen.ofJobs("alien"))
	require.NotEmpty(t, w.seen.ofJobs("start"))
	h.awaitSlots(12)
	requireOneAtATime(t, w)
}

// requireOneAtATime checks that each attempt of a job started after the previous one had ended
// or its worker had died. Killed workers report no end.
func requireOneAtATime(t *testing.T, w *world) {
	t.Helper()
	ends := map[dispatcherd.JobID]map[dispatcherd.Attempt]int64{}
	for id, list := range w.seen.ofJobs("end") {
		ends[id] = map[dispatcherd.Attempt]int64{}
		for _, s := range list {
			ends[id][s.Attempt] = s.At
		}
	}
	for id, starts := range w.seen.ofJobs("start") {
		attempts := map[dispatcherd.Attempt]bool{}
		for _, s := range starts {
			require.False(t, attempts[s.Attempt], "attempt %d of job %d started twice", s.Attempt, id)
			attempts[s.Attempt] = true
			for attempt, end := range ends[id] {
				require.False(t, attempt < s.Attempt && end > s.At, "job %d: attempt %d started before attempt %d had ended", id, s.Attempt, attempt)
			}
		}
	}
}
