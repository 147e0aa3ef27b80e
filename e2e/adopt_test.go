package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// gated inserts jobs that run until the test opens their gates. It waits until their first
// attempts have started.
func (w *world) gated(n int) (ids []dispatcherd.JobID) {
	w.t.Helper()
	for range n {
		ids = append(ids, w.insert("x", work{Do: "gate"}))
	}
	for _, id := range ids {
		w.seen.start(w.t, id, 1)
	}
	return ids
}

// requireOnce checks that each job started once and is done without a failure or crash.
func (w *world) requireOnce(ids []dispatcherd.JobID) {
	w.t.Helper()
	starts := w.seen.ofJobs("start")
	for _, id := range ids {
		job := w.await(id, dispatcherd.Done)
		require.EqualValues(w.t, 1, job.Attempt, "job %d", id)
		require.Zero(w.t, job.Failures+job.Crashes, "job %d", id)
		require.Len(w.t, starts[id], 1, "job %d", id)
	}
}

// The daemon is killed with kill -9 and started again within its lease. The jobs of its workers
// continue. Results that were ready while no daemon ran are sent afterwards. A job whose worker
// died meanwhile becomes pending when the old lease has expired.
func TestRunningJobsSurviveTheirDispatcher(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Lease = time.Minute
	first := w.serve(cfg)
	w.worker("w", cfg.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
	ids := w.gated(4)
	doomed := w.worker("doomed", cfg.WorkerSocket, oneSlot("x"))
	lost := w.gated(1)[0]
	first.kill()
	killed := time.Now()
	doomed.kill()
	w.seen.open(t, w.seen.start(t, ids[0], 1)) // the result is ready while no daemon runs
	w.seen.await(t, "the end of a job while no daemon runs", func(o sighting) bool { return o.What == "end" && o.Job == ids[0] })
	w.serve(cfg)
	w.await(ids[0], dispatcherd.Done)
	t.Logf("from kill -9 of the dispatcher to a result recorded by the next: %v", time.Since(killed))
	require.Less(t, time.Since(killed), cfg.Lease)
	eventually(t, func() bool { return slotsOf(cfg) == 4 }, func() string { return fmt.Sprint("four slots; there are ", slotsOf(cfg)) })
	for _, id := range ids[1:] {
		w.seen.open(t, w.seen.start(t, id, 1))
	}
	w.requireOnce(ids)
	require.Equal(t, dispatcherd.Running, w.get(lost).Status, "the old lease has not expired")
	w.exec(`UPDATE dispatcherd.dispatchers SET lease = '1 ms' WHERE id = (SELECT dispatcher FROM dispatcherd.jobs WHERE id = $1)`, int64(lost))
	w.seen.open(t, w.seen.start(t, lost, 2))
	job := w.await(lost, dispatcherd.Done)
	require.Equal(t, 1, job.Crashes)
	require.Zero(t, job.Failures)
	w.await(w.insert("x", work{}), dispatcherd.Done)
}

// The daemon is killed repeatedly while short jobs run. Each attempt runs once, and no job is
// lost.
func TestRepeatedlyKilledDispatcherLosesNothing(t *testing.T) {
	const rounds, jobs = 4, 800
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Lease = time.Second
	process := w.serve(cfg)
	for i := range 2 {
		w.worker(fmt.Sprint("w", i), cfg.WorkerSocket, scriptSlots{N: 8, Types: []string{"x"}})
	}
	for range rounds {
		w.exec(`INSERT INTO dispatcherd.jobs (type) SELECT 'x' FROM generate_series(1, $1::int) i`, jobs/rounds)
		all, more := w.seen.list()
		for len(all) == 0 {
			<-more
			all, more = w.seen.list()
		}
		process.kill()
		process = w.serve(cfg)
	}
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: jobs})
	requireAttemptsOnce(t, w)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE failures > 0`))
	took := []int{}
	for _, s := range w.seen.ofJobs("start") {
		took = append(took, len(s))
	}
	slices.Sort(took)
	t.Logf("%d jobs, each started at most %d times", jobs, took[len(took)-1])
}

// A daemon that serves remote workers is killed. Its successor does not listen for them, but gives them the time that was promised.
func TestSuccessorKeepsThePromiseToRemoteWorkers(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	w.serve(cfg, "--worker-listen", "127.0.0.1:0", "--remote-resume", "5m").kill()
	w.serve(cfg)
	require.Equal(t, 300, w.number(`SELECT extract(epoch FROM lease)::int FROM dispatcherd.dispatchers WHERE incarnation IS NULL`))
}
