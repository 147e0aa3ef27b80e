package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
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

func TestIdleDaemonStopsAtOnce(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Grace = time.Hour
	process := w.serve(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	eventually(t, func() bool { return slotsOf(cfg) == 1 }, func() string { return "a slot" })
	process.signal(t, syscall.SIGTERM)
	process.ends(t, exit.OK) // no job was running
	require.NoFileExists(t, cfg.WorkerSocket)
	require.NotContains(t, process.errors.text(), `"warn"`, "a regular stop logs no warning")
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE lost_at IS NULL`))
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

// The exec worker passes SIGTERM on to its program and reports how the program ended.
func TestExecWorkerStopsWithItsProgram(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	const script = `echo $$ >"$0.new"; mv "$0.new" "$0"; trap 'echo bye >&2; exit 3' TERM; while :; do sleep 0.01; done`
	c := w.program("worker", "run", "--worker-socket", h.cfg.WorkerSocket, "--types", "x", "--worker-grace", "50ms",
		"--", "sh", "-c", script, w.dir+"/pid")
	id := w.insert("x", work{})
	eventually(t, func() bool { _, err := os.Stat(w.dir + "/pid"); return err == nil }, func() string { return "a program" })
	c.signal(t, syscall.SIGTERM)
	c.ends(t, exit.OK)
	job := w.await(id, dispatcherd.Pending)
	require.Zero(t, job.Failures+job.Crashes)
	h.awaitSlots(0)
}

// A second daemon on the same socket reports an error and does not disturb the first one.
func TestSecondDaemonOnTheSameSocketFails(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	second := w.program("serve", "--database-url", w.dsn, "--worker-socket", cfg.WorkerSocket, "--api-socket", cfg.APISocket)
	<-second.ended
	require.NotZero(t, second.cmd.ProcessState.ExitCode())
	require.Contains(t, second.errors.text(), cfg.WorkerSocket)
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE lost_at IS NULL`))
	w.await(w.insert("x", work{}), dispatcherd.Done)
	h.awaitSlots(1)
}

// Without a schema the daemon says what to do, and removes its sockets.
func TestDaemonWithoutSchemaSaysWhatToDo(t *testing.T) {
	w := newWorldOn(t, pgtest.Empty(t))
	c := w.program("serve", "--database-url", w.dsn, "--worker-socket", w.dir+"/w.sock", "--api-socket", w.dir+"/a.sock")
	c.ends(t, exit.Unavailable)
	require.Contains(t, c.errors.text(), "migrate up")
	require.NoFileExists(t, w.dir+"/w.sock")
}
