package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Running jobs may end within the grace period. The others are pending again without a failure
// or crash. The workers reconnect to the next daemon by themselves.
func TestStopLetsJobsEndWithinTheGracePeriodAndReleasesOthers(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Grace = 5 * time.Second // enough time for a slow machine to end one job; the others use the whole grace period
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, scriptSlots{N: 3, Types: []string{"x"}})
	h.awaitSlots(3)
	ends, tooLong, ignoring := w.insert("x", work{Do: "gate"}), w.insert("x", work{Do: "gate"}), w.insert("x", work{Do: "stubborn"})
	ending := w.seen.start(t, ends, 1)
	w.seen.start(t, tooLong, 1)
	stubborn := w.seen.start(t, ignoring, 1)

	stopped := make(chan error, 1)
	began := time.Now()
	go func() { stopped <- h.stop() }()
	eventually(t, func() bool { return strings.Contains(h.log.text(), `"stopping"`) }, func() string { return "a daemon that stops" })
	require.Contains(t, h.log.text(), `"unended_jobs":3,"second_signal":"ends the dispatcher at once"`)
	w.seen.open(t, ending)
	w.await(ends, dispatcherd.Done)
	after := w.insert("x", work{}) // a slot is free, but no job starts
	require.NoError(t, receive(t, stopped, "the daemon ends after the grace"))
	require.GreaterOrEqual(t, time.Since(began), cfg.Grace)
	require.Equal(t, dispatcherd.Pending, w.get(after).Status)
	for _, id := range []dispatcherd.JobID{tooLong, ignoring} {
		job := w.get(id)
		require.Equal(t, dispatcherd.Pending, job.Status)
		require.Zero(t, job.Failures+job.Crashes)
		require.EqualValues(t, 1, job.Attempt)
	}
	require.NoFileExists(t, cfg.WorkerSocket)
	require.NoFileExists(t, cfg.APISocket)

	next := w.start(cfg)
	w.seen.open(t, w.seen.start(t, tooLong, 2))
	w.await(after, dispatcherd.Done)
	w.await(tooLong, dispatcherd.Done)
	w.seen.start(t, ignoring, 2)
	w.seen.open(t, stubborn) // ends both attempts; the result of the first one is stale
	job := w.await(ignoring, dispatcherd.Done)
	require.JSONEq(t, `{"by":"w","attempt":2}`, string(job.Result))
	next.awaitSlots(3)
	requireAttemptsOnce(t, w)
}

func requireAttemptsOnce(t *testing.T, w *world) {
	t.Helper()
	for id, starts := range w.seen.ofJobs("start") {
		seen := map[dispatcherd.Attempt]bool{}
		for _, s := range starts {
			require.False(t, seen[s.Attempt], "attempt %d of job %d started twice", s.Attempt, id)
			seen[s.Attempt] = true
		}
	}
}

// A second signal ends the grace period.
func TestSecondSignalEndsTheDaemonAtOnce(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Grace = time.Hour
	process := w.serve(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	w.seen.start(t, w.insert("x", work{Do: "stubborn"}), 1)
	process.signal(t, syscall.SIGTERM)
	eventually(t, func() bool { return strings.Contains(process.errors.text(), "stopping") }, func() string { return "a daemon that stops" })
	process.signal(t, syscall.SIGTERM)
	<-process.ended
	require.Equal(t, syscall.SIGTERM, process.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// A worker that is told to stop ends its jobs within its own grace period and releases the
// others. Released jobs count no failure and no crash.
func TestStoppingWorkerEndsOrReleasesItsJobs(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	slots := []scriptSlots{{N: 2, Types: []string{"x"}}}
	old := w.workerWith(workerScript{Socket: h.cfg.WorkerSocket, Name: "old", Slots: slots, Handles: []string{"x"}, Grace: time.Second})
	h.awaitSlots(2)
	ends, tooLong := w.insert("x", work{Do: "gate"}), w.insert("x", work{Do: "gate"})
	ending := w.seen.start(t, ends, 1)
	w.seen.start(t, tooLong, 1)
	old.signal(t, syscall.SIGTERM)
	w.worker("new", h.cfg.WorkerSocket, slots...)
	w.seen.open(t, ending)
	require.JSONEq(t, `{"by":"old","attempt":1}`, string(w.await(ends, dispatcherd.Done).Result))
	old.ends(t, exit.OK)
	w.seen.open(t, w.seen.start(t, tooLong, 2))
	job := w.await(tooLong, dispatcherd.Done)
	require.JSONEq(t, `{"by":"new","attempt":2}`, string(job.Result))
	require.Zero(t, job.Failures+job.Crashes)
	h.awaitSlots(2)
}
