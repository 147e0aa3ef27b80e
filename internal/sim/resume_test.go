package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim/claimfake"
)

// keepExecutions makes every worker resumable and every resume offer valid.
func keepExecutions(w *world) {
	w.detach.window, w.detach.forged, w.detach.reconnectLate = 30*second, 0, 0
	w.scale.misreported = 0
	w.detach.notResumable = 0
	for _, k := range w.workers {
		k.notResumable = false
	}
}

// Every dispatcher restarts repeatedly. Running jobs are adopted, none is
// executed twice concurrently, and none counts a crash.
func TestPlannedRestartRunsNoJobTwice(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, HandOver, 16, func(w *world) {
		keepExecutions(w)
		w.scale.jobMax = max(w.scale.jobMax, 200*millisecond)
		forbidCrashes(w)
	})
	require.Positive(t, s.HandedOver)
	require.Positive(t, s.Adopted)
	require.Zero(t, s.Overlaps, "executed twice concurrently")
}

// Dispatchers that crash and restart within the lease adopt their workers'
// executions. The jobs of workers that crash meanwhile run again.
func TestExecutionsSurviveDispatcherCrash(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Resume|Kill|Crash, 12, keepExecutions)
	require.Positive(t, s.Crashes)
	require.Positive(t, s.Kills)
	require.Positive(t, s.Adopted)
	require.Positive(t, s.TakenOver)
}

// Adoption is combined with lost and late answers, clock jumps, suspended
// dispatchers, and workers that crash, change dispatchers or reconnect too
// late.
func TestAdoptionWithAllFaults(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, All, 12, nil)
	require.Positive(t, s.Adopted)
	require.Positive(t, s.Expired)
	require.Positive(t, s.Offered-s.Resumed, "no offer was rejected")
}

// A dispatcher that was suspended reads the frames of several connections of
// one worker in any order. In these worlds the oldest resume offer arrives
// last. It must not move the execution to a dead connection: the slot would
// leak, and the job would run again.
func TestResumeOffersArriveOutOfOrder(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{43, 170} {
		o := Options{Seed: seed, Faults: Resume | HandOver | Stop | Unknown, Every: true, Dispatchers: 3}
		r := Run(o)
		require.Nil(t, r.Violation, "seed %d: %v", seed, r.Violation)
	}
}

// forbidCrashes requires at the end that no job counts a crash.
func forbidCrashes(w *world) {
	w.judge.atEnd = func(r *claimfake.Row) {
		if r.Crashes > 0 {
			w.violate("a job counts %d crashes in a world without crashes", r.Crashes)
		}
	}
}

// Jobs ignore their cancel, and workers add slots, also to a dispatcher that
// has ended their session while its frames are in flight. Such a slot receives
// no job, so that no crash is counted for it.
func TestSlotsAddedAfterHangUpGetNoJob(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Shuffle, 24, func(w *world) {
		keepExecutions(w)
		forbidCrashes(w)
		w.detach.shortGrace, w.detach.handshake = true, second
		w.scale.jobMax, w.scale.cancelGap = 400*millisecond, second/100
	})
	require.Positive(t, s.HungUp)
	require.Positive(t, s.LateSlots, "no slot was added after a hang-up")
}

// Workers reconnect after the window. Their rows are released then, without a
// crash, and run again.
func TestRowsWithoutResumeOfferAreReleasedWithoutCrash(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, HandOver, 8, func(w *world) {
		keepExecutions(w)
		forbidCrashes(w)
		w.detach.window = second / 10
	})
	require.Positive(t, s.NotAdopted)
	require.Positive(t, s.Expired)
}

// The rows of workers without resumable executions are released at once.
func TestNonResumableRowsAreReleasedAtOnce(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, HandOver, 8, func(w *world) {
		forbidCrashes(w)
		for _, k := range w.workers {
			k.notResumable = true
		}
	})
	require.Zero(t, s.HandedOver)
	require.Zero(t, s.Adopted)
	require.Zero(t, s.TakenOver)
}
