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
	const restarts, jobs = 10, 4
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
		if i%3 == 1 {
			w.seen.open(t, w.seen.start(t, ids[i/3], 1))
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
