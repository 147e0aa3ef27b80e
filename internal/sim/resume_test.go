package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// resuming makes every worker keep its executions, and no presentation wrong.
func keepExecutions(w *world) {
	w.detach.window, w.detach.forged, w.detach.reconnectLate = 30*second, 0, 0
	w.scale.misreported = 0
	w.detach.notResumable = 0
	for _, k := range w.workers {
		k.notResumable = false
	}
}

// A planned restart, again and again, of every dispatcher: what runs on is
// adopted, nothing is executed twice at a time, and nobody is to blame.
func TestPlannedRestartRunsNoJobTwice(t *testing.T) {
	s := runWorlds(t, HandOver, 16, func(w *world) {
		keepExecutions(w)
		w.scale.jobMax = max(w.scale.jobMax, 200*millisecond)
		forbidCrashes(w)
	})
	require.Positive(t, s.HandedOver)
	require.Positive(t, s.Adopted)
	require.Zero(t, s.Overlaps, "executed twice at a time")
}

// Dispatchers that are killed and come back within the lease find their workers'
// executions again; those of workers that die in between run anew.
func TestExecutionsSurviveDispatcherCrash(t *testing.T) {
	s := runWorlds(t, Resume|Kill|Crash, 12, keepExecutions)
	require.Positive(t, s.Crashes)
	require.Positive(t, s.Kills)
	require.Positive(t, s.Adopted)
	require.Positive(t, s.TakenOver)
}

// Everything that can meet an adoption meets it: lost and late answers, clocks,
// dispatchers that stand still, workers that die, wander and come too late.
func TestAdoptionWithAllFaults(t *testing.T) {
	s := runWorlds(t, All, 12, nil)
	require.Positive(t, s.Adopted)
	require.Positive(t, s.Expired)
	require.Positive(t, s.Offered-s.Resumed, "nothing was refused")
}

// A dispatcher that stood still hears what a worker said on several connections in
// any order. In these worlds the oldest presentation came last and took the
// execution to a connection that was dead: its slot leaked, and it ran anew.
func TestResumeOffersArriveOutOfOrder(t *testing.T) {
	for _, seed := range []uint64{43, 170} {
		o := Options{Seed: seed, Faults: Resume | HandOver | Stop | Unknown, Every: true, Dispatchers: 3}
		r := Run(o)
		require.Nil(t, r.Violation, "seed %d: %v", seed, r.Violation)
	}
}

// blameless is said of every job of a world in which nothing crashes.
func forbidCrashes(w *world) {
	w.judge.atEnd = func(r *row) {
		if r.crashes > 0 {
			w.violate("a job counts %d crashes, and nothing has crashed", r.crashes)
		}
	}
}

// Jobs ignore their cancel all the time, and workers bring slots all the time, also
// to a dispatcher that has hung up on them and whose word they have not heard. No
// job goes to such a slot, so nobody's death is made up.
func TestSlotsAddedAfterHangUpGetNoJob(t *testing.T) {
	s := runWorlds(t, Shuffle, 24, func(w *world) {
		keepExecutions(w)
		forbidCrashes(w)
		w.detach.shortGrace, w.detach.handshake = true, second
		w.scale.jobMax, w.scale.cancelGap = 400*millisecond, second/100
	})
	require.Positive(t, s.HungUp)
	require.Positive(t, s.LateSlots, "no slot came late")
}

// Workers that come too late find their rows released: they run again when the
// time to resume is over, and that counts as nothing.
func TestRowsWithoutResumeOfferAreReleasedWithoutCrash(t *testing.T) {
	s := runWorlds(t, HandOver, 8, func(w *world) {
		keepExecutions(w)
		forbidCrashes(w)
		w.detach.window = second / 10
	})
	require.Positive(t, s.NotAdopted)
	require.Positive(t, s.Expired)
}

// Workers that keep nothing have said so: their rows wait for nobody.
func TestNonResumableRowsAreReleasedAtOnce(t *testing.T) {
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
