package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// A planned restart: what cannot end within the grace is handed over to the next
// daemon on the socket, as systemd starts it: as soon as the old one has exited.
func TestAPlannedRestartHandsRunningJobsOver(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Grace = 300 * time.Millisecond
	process := w.serve(cfg)
	w.worker("w", cfg.WorkerSocket, scriptSlots{N: 3, Types: []string{"x"}})
	w.worker("v", cfg.WorkerSocket, scriptSlots{N: 3, Types: []string{"x"}})
	ids := w.gated(6)
	for range 3 {
		began := time.Now()
		process.signal(t, syscall.SIGTERM)
		process.ends(t, exitOK)
		require.Less(t, time.Since(began), cfg.Grace+3*time.Second)
		w.seen.open(t, w.seen.start(t, ids[0], 1))
		process = w.serve(cfg)
		w.await(ids[0], dispatcherd.Done)
		w.requireOnce(ids[:1])
		ids = ids[1:]
		eventually(t, func() bool { return slotsOf(cfg) == 6 }, func() string { return "both workers with all their slots" })
	}
	for _, id := range ids {
		w.seen.open(t, w.seen.start(t, id, 1))
	}
	w.requireOnce(ids)
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE attempt > 1 OR failures + crashes > 0`))
}

// Nobody comes: when the time to resume is over another dispatcher releases the
// jobs, and that counts as nothing.
func TestWhatNobodyTakesBackIsReleasedWithoutBlame(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Grace = 50 * time.Millisecond
	process := w.serve(cfg, "--resume", "1s")
	old := w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	ids := w.gated(1)
	process.signal(t, syscall.SIGTERM)
	process.ends(t, exitOK)
	require.Equal(t, dispatcherd.Running, w.get(ids[0]).Status)
	old.kill()
	other := w.start(w.config("other"))
	w.worker("v", other.cfg.WorkerSocket, oneSlot("x"))
	w.seen.open(t, w.seen.start(t, ids[0], 2))
	job := w.await(ids[0], dispatcherd.Done)
	require.Zero(t, job.Failures+job.Crashes)
}
