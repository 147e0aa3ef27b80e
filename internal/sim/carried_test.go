package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// resuming makes every worker keep its executions, and no presentation wrong.
func resuming(w *world) {
	w.carry.window, w.carry.bold, w.carry.late = 30*second, 0, 0
	w.scale.careless = 0
	w.carry.plain = 0
	for _, k := range w.workers {
		k.plain = false
	}
}

// A planned restart, again and again, of every dispatcher: what runs on is
// adopted, nothing is executed twice at a time, and nobody is to blame.
func TestAPlannedRestartRunsNothingTwice(t *testing.T) {
	s := through(t, HandOver, 16, func(w *world) {
		resuming(w)
		w.scale.jobMax = max(w.scale.jobMax, 200*millisecond)
		blameless(w)
	})
	require.Positive(t, s.HandedOver)
	require.Positive(t, s.Adopted)
	require.Zero(t, s.Overlaps, "executed twice at a time")
}

// Dispatchers that are killed and come back within the lease find their workers'
// executions again; those of workers that die in between run anew.
func TestWorkSurvivesADispatcherThatIsKilled(t *testing.T) {
	s := through(t, Resume|Kill|Crash, 12, resuming)
	require.Positive(t, s.Crashes)
	require.Positive(t, s.Kills)
	require.Positive(t, s.Adopted)
	require.Positive(t, s.TakenOver)
}

// Everything that can meet an adoption meets it: lost and late answers, clocks,
// dispatchers that stand still, workers that die, wander and come too late.
func TestAdoptionAmongAllTroubles(t *testing.T) {
	s := through(t, All, 12, nil)
	require.Positive(t, s.Adopted)
	require.Positive(t, s.Expired)
	require.Positive(t, s.Presented-s.Resumed, "nothing was refused")
}

// A dispatcher that stood still hears what a worker said on several connections in
// any order. In these worlds the oldest presentation came last and took the
// execution to a connection that was dead: its slot leaked, and it ran anew.
func TestPresentationsAreHeardOutOfOrder(t *testing.T) {
	for _, seed := range []uint64{43, 170} {
		o := Options{Seed: seed, Faults: Resume | HandOver | Stop | Unknown, Every: true, Dispatchers: 3}
		r := Run(o)
		require.Nil(t, r.Violation, "seed %d: %v", seed, r.Violation)
	}
}

// blameless is said of every job of a world in which nothing crashes.
func blameless(w *world) {
	w.judge.atEnd = func(r *row) {
		if r.crashes > 0 {
			w.violate("a job counts %d crashes, and nothing has crashed", r.crashes)
		}
	}
}

// Jobs ignore their cancel all the time, and workers bring slots all the time, also
// to a dispatcher that has hung up on them and whose word they have not heard. No
// job goes to such a slot, so nobody's death is made up.
func TestSlotsThatComeAfterTheHangUp(t *testing.T) {
	s := through(t, Shuffle, 24, func(w *world) {
		resuming(w)
		blameless(w)
		w.carry.short, w.carry.patience = true, second
		w.scale.jobMax, w.scale.cancelGap = 400*millisecond, second/100
	})
	require.Positive(t, s.HungUp)
	require.Positive(t, s.Belated, "no slot came late")
}

// Workers that come too late find their rows released: they run again when the
// time to resume is over, and that counts as nothing.
func TestWhatNobodyBringsAlongIsReleasedWithoutBlame(t *testing.T) {
	s := through(t, HandOver, 8, func(w *world) {
		resuming(w)
		blameless(w)
		w.carry.window = second / 10
	})
	require.Positive(t, s.Unclaimed)
	require.Positive(t, s.Expired)
}

// Workers that keep nothing have said so: their rows wait for nobody.
func TestWhatEndsWithItsConnectionIsReleasedAtOnce(t *testing.T) {
	s := through(t, HandOver, 8, func(w *world) {
		blameless(w)
		for _, k := range w.workers {
			k.plain = true
		}
	})
	require.Zero(t, s.HandedOver)
	require.Zero(t, s.Adopted)
	require.Zero(t, s.TakenOver)
}
