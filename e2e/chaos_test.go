package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// The kill -9 of a worker does not fail an on-demand request. The request runs on another
// worker while its caller waits.
func TestRequestSurvivesTheDeathOfItsWorker(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	first := w.worker("first", h.cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	defer cancel()
	type outcome struct {
		answer ondemand.Answer
		err    error
	}
	answered := make(chan outcome, 1)
	go func() {
		a, err := h.Do(ctx, ondemand.Request{Type: "x", Payload: []byte(`{"do":"gate"}`)})
		answered <- outcome{a, err}
	}()
	w.seen.await(t, "the request start", func(s sighting) bool { return s.What == "start" })
	w.worker("second", h.cfg.WorkerSocket, oneSlot("x"))
	eventually(t, func() bool { return h.gauges().Free == 1 }, func() string { return "a second worker" })
	first.kill()
	w.seen.open(
		t,
		w.seen.await(t, "the request start on the second worker", func(s sighting) bool { return s.What == "start" && s.Worker == "second" }),
	)
	got := <-answered
	require.NoError(t, got.err)
	require.Equal(t, ondemand.Done, got.answer.Kind, got.answer.Reason)
	require.JSONEq(t, `{"by":"second","attempt":2}`, string(got.answer.Payload))
	h.awaitSlots(1)
}

// Two dispatchers are stopped and started. Workers are killed, stopped and started. Connections
// are cut. Jobs fail, time out and are cancelled. In the end every job has a final status. No
// two attempts of a job ran at the same time, unless the worker of the first one was declared
// lost.
func TestChaosLosesNothing(t *testing.T) {
	const (
		rounds   = 42
		perRound = 40
	)
	w := newWorld(t)
	dice := rand.New(rand.NewPCG(7, 7))
	configs := []daemon.Config{w.config("a"), w.config("b")}
	hosts := make([]*host, len(configs))
	var crew []*child
	launch := func(i int) *child {
		return w.worker(
			fmt.Sprint("w", i),
			configs[i%2].WorkerSocket,
			scriptSlots{N: 3, Types: []string{"x", "y"}},
			scriptSlots{N: 1, Types: []string{"z"}},
		)
	}
	for i := range configs {
		configs[i].Core.Limits.Crashes = 1000
		configs[i].Grace = 50 * time.Millisecond
		hosts[i] = w.start(configs[i])
	}
	for i := range 4 {
		crew = append(crew, launch(i))
	}
	revive := func() {
		for i, c := range crew {
			select {
			case <-c.ended:
				crew[i] = launch(i)
			default:
			}
		}
	}
	types := []string{"x", "y", "z"}
	plans := []work{{}, {}, {}, {Do: "fail", Times: 1, Error: "once"}, {Do: "permanent", Error: "never"}, {Do: "die-once"}}
	for round := range rounds {
		var last dispatcherd.JobID
		for range perRound {
			last = w.insertNew(claim.New{Type: types[dice.IntN(3)], Priority: dispatcherd.Priority(dice.IntN(11))}, plans[dice.IntN(len(plans))])
		}
		switch i := dice.IntN(len(crew)); round % 6 {
		case 0, 1:
			crew[i].kill()
			crew[i] = launch(i)
		case 2:
			w.exec(
				`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'dispatcherd %'`,
			)
		case 3:
			for id := last - perRound/2; id <= last; id += 3 {
				if _, err := w.jobs.Cancel(t.Context(), id); err != nil {
					require.ErrorContains(t, err, "only waiting, pending and running")
				}
			}
		case 4:
			require.NoError(t, hosts[i%2].stop())
			hosts[i%2] = w.start(configs[i%2])
		case 5:
			_ = crew[i].cmd.Process.Signal(syscall.SIGTERM) // a job may have killed the worker
			<-crew[i].ended
			crew[i] = launch(i)
		}
		revive()
	}
	var counts map[dispatcherd.Status]int64
	for left := int64(rounds * perRound); left > 0; { // each job that ends shows progress: workers start slowly on a busy machine
		eventually(t, func() bool {
			revive()
			var err error
			counts, err = w.jobs.Counts(t.Context())
			require.NoError(t, err)
			return counts[dispatcherd.Pending]+counts[dispatcherd.Running] < left
		}, func() string {
			return fmt.Sprint("a final status of every job; ", counts, hosts[0].gauges(), hosts[1].gauges())
		})
		left = counts[dispatcherd.Pending] + counts[dispatcherd.Running]
	}
	for _, h := range hosts {
		h.awaitSlots(8)
		require.NotContains(t, h.log.text(), "panic")
		require.NotContains(t, strings.ToLower(h.log.text()), "lease is lost")
	}
	t.Log(counts)
	require.EqualValues(t, rounds*perRound, counts[dispatcherd.Done]+counts[dispatcherd.Failed]+counts[dispatcherd.Cancelled])
	require.Equal(t, rounds*perRound, w.number(`SELECT count(DISTINCT id) FROM dispatcherd.jobs`), "each job must have exactly one row")
	require.Empty(t, w.seen.ofJobs("alien"))
	requireOneAtATime(t, w)
	// The row contains the outcome of the last attempt.
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done' AND (result->>'attempt')::int <> attempt`))
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'failed' AND payload->>'do' <> 'permanent'`))
	require.Zero(t, w.deadlocks())
}
