package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// over returns a client of the API of a daemon.
func (h *host) over() *client.Client {
	h.t.Helper()
	c, err := client.New(client.Options{Socket: h.cfg.APISocket})
	require.NoError(h.t, err)
	return c
}

// traffic inserts jobs of a type all the time until the end of the test, or until stop is called.
func (w *world) traffic(typ string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		next := time.NewTicker(2 * time.Millisecond)
		defer next.Stop()
		for ctx.Err() == nil {
			_, _ = w.db.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, payload) VALUES ($1, '{}')`, typ)
			select {
			case <-next.C:
			case <-ctx.Done():
			}
		}
	}()
	stop = func() { cancel(); <-ended }
	w.t.Cleanup(stop)
	return stop
}

// startsAfter counts the starts at a worker, or of a type, after an instant. On a busy machine, a worker may start a job later that was
// placed before. So it asks the dispatchers for the placements of these jobs.
func (w *world) startsAfter(at time.Time, of func(sighting) bool, hosts ...*host) (n int) {
	w.seen.mu.Lock()
	late := slices.DeleteFunc(slices.Clone(w.seen.all), func(s sighting) bool { return s.What != "start" || s.At <= at.UnixNano() || !of(s) })
	w.seen.mu.Unlock()
	for _, s := range late {
		n++
		for _, h := range hosts {
			why, err := client.Call[httpapi.Why](w.t.Context(), h.over(), http.MethodGet, fmt.Sprintf("/v1/jobs/%d/why", s.Job), nil)
			if err == nil && why.Placement != nil && why.Placement.At.Before(at) {
				n--
				break
			}
		}
	}
	return n
}

// pauseBound is within what time all dispatchers follow a change.
const pauseBound = 1500 * time.Millisecond

func TestPauseIsEffectiveOnAllDispatchers(t *testing.T) {
	w := newWorld(t)
	a, b := w.start(w.config("a")), w.start(w.config("b"))
	for _, h := range []*host{a, b} {
		w.worker("w"+h.cfg.Name, h.cfg.WorkerSocket, oneSlot("x", "y"))
		h.awaitSlots(1)
	}
	stop := w.traffic("x")
	for _, h := range []*host{a, b} {
		w.seen.await(t, "a job at each dispatcher", func(s sighting) bool { return s.What == "start" && s.Worker == "w"+h.cfg.Name })
	}
	began := time.Now()
	p, err := a.over().PauseType(t.Context(), "x", client.PauseOrder{For: new(contract.Duration(time.Hour)), Reason: "upgrade"})
	answered := time.Now()
	require.NoError(t, err)
	require.Empty(t, p.Unconfirmed)
	t.Logf("pause_effective_ms=%d", answered.Sub(began).Milliseconds())
	require.Less(t, answered.Sub(began), pauseBound)
	waiting := w.insert("x", work{})
	for range 20 { // they pass the paused jobs
		w.await(w.insert("y", work{}), dispatcherd.Done)
	}
	require.Zero(t, w.startsAfter(answered, func(s sighting) bool { return s.Type == "x" }, a, b))
	stop()
	by := strings.TrimPrefix(p.Text(), "Paused ")
	for _, h := range []*host{a, b} {
		require.Contains(t, h.shown("types"), by)
		require.Contains(t, h.shown("job why %d", waiting), "Paused: "+by)
		require.NotContains(t, h.shown("job why %d", waiting), "Outranked")
		require.Positive(t, h.samples()["dispatcherd_paused_types"])
	}
	_, err = b.over().Do(t.Context(), client.Request{Type: "x", Timeout: time.Minute})
	var problem *client.Problem
	require.ErrorAs(t, err, &problem)
	require.Equal(t, client.TypePaused, problem.Type)
	require.Equal(t, p.Text(), problem.Detail)
	require.InDelta(t, time.Hour.Seconds(), problem.RetryAfter().Seconds(), 60)

	again := b.onAPI("", "type", "pause", "x", "--queued")
	require.Equal(t, exit.OK, again.code, again.err)
	require.Contains(t, again.err, "This replaces what was set by "+p.By)
	require.Contains(t, again.out, "type x paused: queued, by ")
	require.Equal(t, "type x resumed\n", b.shown("type resume x"))
	missing := b.onAPI("", "type", "resume", "x")
	require.Equal(t, exit.NotFound, missing.code)
	require.Contains(t, missing.err, `type "x" is not paused`)
	w.await(waiting, dispatcherd.Done)
}

// A type that no dispatcher knows can be paused, because types come and go.
func TestPauseOfAnUnknownTypeIsDoubted(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("convert"))
	h.awaitSlots(1)
	got := h.onAPI("", "type", "pause", "convrt", "--for", "7d")
	require.Equal(t, exit.OK, got.code)
	require.Contains(t, got.err, `no slot of any dispatcher supports type "convrt": did you mean "convert"?`)
	require.Contains(t, h.shown("types"), "convrt")
	for _, bad := range []string{"--for 0s", "--for 9000h", "--reason " + fmt.Sprint(make([]int, 600))} {
		require.NotEqual(t, exit.OK, h.onAPI("", append([]string{"type", "pause", "x"}, splitOnce(bad)...)...).code, bad)
	}
}

// splitOnce divides a flag from its value.
func splitOnce(text string) []string {
	if i := slices.Index([]byte(text), ' '); i > 0 {
		return []string{text[:i], text[i+1:]}
	}
	return []string{text}
}

// The worker is at another dispatcher than the one that is asked. Jobs arrive all the time, so claims are in flight when it is drained.
func TestDrainedWorkerGetsNoJobAfterTheAnswer(t *testing.T) {
	w := newWorld(t)
	a, b := w.start(w.config("a")), w.start(w.config("b"))
	w.worker("wa", a.cfg.WorkerSocket, oneSlot("x"))
	process := w.worker("wb", b.cfg.WorkerSocket, scriptSlots{N: 8, Types: []string{"x", "y"}})
	a.awaitSlots(1)
	b.awaitSlots(8)
	stop := w.traffic("x")
	w.seen.await(t, "a job", func(s sighting) bool { return s.What == "start" && s.Worker == "wb" })
	atB := func(s sighting) bool { return s.Worker == "wb" }
	for range 5 {
		d, err := a.over().DrainWorker(t.Context(), "wb", client.DrainOrder{Reason: "new disk"})
		answered := time.Now()
		require.NoError(t, err)
		require.Empty(t, d.Unconfirmed)
		require.Equal(t, []string{"y"}, d.Uncovered, "x has a slot at the other dispatcher")
		at := w.insert("x", work{})
		w.await(at, dispatcherd.Done)
		require.Zero(t, w.startsAfter(answered, atB, a, b))
		require.Contains(t, b.shown("worker list"), "new disk")
		require.Contains(t, b.shown("slot list"), "drained")
		_, err = a.over().ResumeWorker(t.Context(), "wb")
		require.NoError(t, err)
		resumed := time.Now()
		w.seen.await(t, "a job after it is resumed", func(s sighting) bool { return s.What == "start" && atB(s) && s.At > resumed.UnixNano() })
	}
	require.Equal(t, "worker wb drained, and no job of these types runs there\n", a.shown("worker drain wb --types y --wait"))
	require.Equal(t, "worker wb drained, and no job runs there\n", a.shown("worker drain wb --wait"))
	require.Empty(t, b.slots()[0].Drain.Types, "waiting alone keeps no drain of some types, because others still start there")
	since := b.slots()[0].Drain.At
	require.Contains(t, a.shown("worker drain wb --wait"), "worker wb drained, and no job runs there")
	require.Equal(t, since, b.slots()[0].Drain.At, "waiting alone keeps the drain")
	drained := "worker wb supports it, but was drained by " + b.slots()[0].Drain.By + ": 'dispatcherd worker resume wb'"
	for _, h := range []*host{a, b} {
		got := h.onAPI("", "job", "insert", "--type", "y")
		require.Contains(t, got.err, drained)
		id := strings.Fields(got.out)[0]
		require.Contains(t, h.shown("job why %s", id), "no slot of any dispatcher supports the type: "+drained)
		eventually(t, func() bool { // after the next count of pending rows
			return strings.Contains(strings.Join(strings.Fields(h.shown("status")), " "), "no slot supports the type: "+drained)
		}, func() string { return h.shown("status") })
	}
	answered := time.Now()
	require.NoError(t, b.stop())
	b = w.start(b.cfg)
	eventually(t, func() bool { return len(b.slots()) == 8 }, func() string { return "the worker connects again" })
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.Zero(t, w.startsAfter(answered, atB), "it stays drained after a restart of its dispatcher")
	require.Equal(t, "drained", b.slots()[0].State)
	stop()
	require.Contains(t, a.shown("worker drains"), "wb")
	missing := a.onAPI("", "worker", "drain", "wc")
	require.Equal(t, exit.NotFound, missing.code)
	require.Contains(t, missing.err, `no worker "wc" is connected; connected are: wa, wb`)
	require.Equal(t, "worker wb resumed\n", b.shown("worker resume wb"))
	w.await(w.insert("y", work{}), dispatcherd.Done)
	process.signal(t, syscall.SIGTERM)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE failures + crashes > 0`), "no attempt is counted")
	for id, runs := range w.seen.ofJobs("start") {
		require.Len(t, runs, 1, "job %d", id)
	}
}

// Dispatchers are restarted one after the other, under load. They know what is paused and drained before they know a worker.
func TestPausesAndDrainsSurviveARollingRestart(t *testing.T) {
	w := newWorld(t)
	hosts := []*host{w.start(w.config("a")), w.start(w.config("b"))}
	for _, h := range hosts {
		w.worker("w"+h.cfg.Name, h.cfg.WorkerSocket, oneSlot("x", "y"))
		h.awaitSlots(1)
	}
	w.traffic("x")
	w.traffic("y")
	_, err := hosts[0].over().PauseType(t.Context(), "x", client.PauseOrder{})
	require.NoError(t, err)
	_, err = hosts[0].over().DrainWorker(t.Context(), "wb", client.DrainOrder{})
	require.NoError(t, err)
	placed := func(s sighting) bool { return s.Type == "x" || s.Worker == "wb" }
	began := time.Now()
	eventually(t, func() bool {
		return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'running' AND type = 'x'`) == 0
	},
		func() string { return "the end of what ran" })
	require.Zero(t, w.startsAfter(began, placed, hosts...))
	began = time.Now()
	for range 2 {
		for i, h := range hosts {
			require.NoError(t, h.stop())
			hosts[i] = w.start(h.cfg)
			eventually(t, func() bool { return len(hosts[i].slots()) == 1 }, func() string { return "the worker connects again" })
		}
		at := time.Now()
		w.seen.await(t, "a job of the other type", func(s sighting) bool { return s.What == "start" && s.At > at.UnixNano() })
	}
	require.Zero(t, w.startsAfter(began, placed))
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE failures + crashes > 0`))
}

// Two workers have one name, and one of them is drained by its session.
func TestOneOfTwoWorkersWithOneNameIsDrained(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("twin", h.cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	first := h.slots()[0].Session
	w.worker("twin", h.cfg.WorkerSocket, oneSlot("x", "y"))
	h.awaitSlots(2)
	d, err := h.over().DrainWorker(t.Context(), fmt.Sprint(first), client.DrainOrder{})
	require.NoError(t, err)
	require.NotEmpty(t, d.Process)
	require.Empty(t, d.Uncovered)
	w.await(w.insert("y", work{}), dispatcherd.Done)
	for _, s := range h.slots() {
		require.Equal(t, s.Session == first, s.State == "drained")
	}
	_, err = h.over().ResumeWorker(t.Context(), "twin")
	require.NoError(t, err)
	h.awaitSlots(2)
}

// The pause ends while Postgres is down. A request that needs no row runs on time.
func TestPauseExpiresDuringAnOutage(t *testing.T) {
	w, server, options := newWorldOnOwnServer(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	const length = 3 * time.Second
	p, err := h.over().PauseType(t.Context(), "x", client.PauseOrder{For: new(contract.Duration(length))})
	require.NoError(t, err)
	job := w.insert("x", work{})
	w.db.Reset()
	require.NoError(t, server.Stop())
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	defer cancel()
	_, err = h.framesClient().Do(ctx, client.Request{Type: "x", Payload: work{}})
	require.NoError(t, err)
	late := time.Since(*p.Until)
	t.Logf("the request was done %v after the end of the pause", late)
	require.Greater(t, late, -50*time.Millisecond)
	require.Less(t, late, 2*time.Second)
	again, err := devpg.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Stop()) })
	w.await(job, dispatcherd.Done)
	require.NoError(t, h.stop()) // the daemon stops before the server
	w.db.Close()
}

// A key that two types share is not held for a paused type.
func TestPausedTypeHoldsNoKeyOfOthers(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"), oneSlot("y"))
	h.awaitSlots(2)
	gate := w.insert("x", work{Do: "gate"}) // the slot of x is busy, so the next job gets its permit and waits
	running := w.seen.start(t, gate, 1)
	held := w.keyed("k", work{})
	w.exec(`UPDATE dispatcherd.jobs SET type = 'x' WHERE id = $1`, held)
	eventually(t, func() bool {
		return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE id = $1 AND fence IS NOT NULL`, held) == 1
	},
		func() string { return "the permit" })
	_, err := h.over().PauseType(t.Context(), "x", client.PauseOrder{})
	require.NoError(t, err)
	other := w.id(`INSERT INTO dispatcherd.jobs (type, keys, payload) VALUES ('y', 'k', '{}') RETURNING id`)
	w.await(other, dispatcherd.Done)
	require.Contains(t, h.shown("job why %d", held), "Paused: by ")
	w.seen.open(t, running)
	_, err = h.over().ResumeType(t.Context(), "x")
	require.NoError(t, err)
	w.await(held, dispatcherd.Done)
}
