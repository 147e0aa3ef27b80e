package e2e

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Planned restarts follow one another at random times: while workers reconnect, while they send
// resume offers, and while their jobs are adopted. Jobs that cannot end within the grace period
// are handed over to the next daemon on the socket, which starts as soon as the old one has
// exited, as with systemd. No job runs twice. Results that were ready while no dispatcher ran
// are recorded afterwards.
func TestPlannedRestartHandsRunningJobsOver(t *testing.T) {
	const restarts, jobs = 25, 6
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Grace = 50 * time.Millisecond
	process := w.serve(cfg)
	w.worker("w", cfg.WorkerSocket, scriptSlots{N: jobs / 2, Types: []string{"x"}})
	w.worker("v", cfg.WorkerSocket, scriptSlots{N: jobs / 2, Types: []string{"x"}})
	ids := w.gated(jobs)
	dice := rand.New(rand.NewPCG(1, 2))
	var took []time.Duration
	for i := range restarts {
		moment := time.NewTimer(time.Duration(dice.IntN(120)) * time.Millisecond)
		<-moment.C
		began := time.Now()
		process.signal(t, syscall.SIGTERM)
		if i%5 == 1 {
			w.seen.open(t, w.seen.start(t, ids[i/5], 1))
		}
		process.ends(t, exit.OK)
		took = append(took, time.Since(began))
		process = w.serve(cfg)
	}
	slices.Sort(took)
	t.Logf("from SIGTERM to the end, %d restarts: p50 %v, max %v", restarts, took[restarts/2], took[restarts-1])
	require.Less(t, took[restarts/2], cfg.Grace+3*time.Second, "the median, because a shared machine may stall during some restarts")
	w.seen.open(t, w.seen.start(t, ids[jobs-1], 1))
	w.requireOnce(ids)
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE attempt > 1 OR failures + crashes > 0`))
}

// No worker resumes the jobs. When the time to resume is over, another dispatcher releases
// them. The release counts neither as a failure nor as a crash.
func TestJobsThatNoWorkerResumesAreReleasedWithoutFailure(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Grace = 50 * time.Millisecond
	process := w.serve(cfg, "--resume", "1s")
	old := w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	ids := w.gated(1)
	process.signal(t, syscall.SIGTERM)
	process.ends(t, exit.OK)
	require.Equal(t, dispatcherd.Running, w.get(ids[0]).Status)
	old.kill()
	other := w.start(w.config("other"))
	w.worker("v", other.cfg.WorkerSocket, oneSlot("x"))
	w.seen.open(t, w.seen.start(t, ids[0], 2))
	job := w.await(ids[0], dispatcherd.Done)
	require.Zero(t, job.Failures+job.Crashes)
}
