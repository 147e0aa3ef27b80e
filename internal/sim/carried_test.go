package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// resuming makes every worker keep its executions, and no presentation wrong.
func resuming(w *world) {
	w.carry.window, w.carry.bold, w.carry.late = 30*second, 0, 0
	w.scale.careless = 0
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
		w.judge.atEnd = func(r *row) {
			if r.crashes > 0 {
				w.violate("a job counts %d crashes, and nothing has crashed", r.crashes)
			}
		}
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

// Workers that cannot keep executions leave their rows to the end of the time to
// resume; then they run again, and that counts as nothing.
func TestWhatNobodyBringsAlongIsReleasedWithoutBlame(t *testing.T) {
	s := through(t, HandOver, 8, func(w *world) {
		w.carry.window = second
		for _, k := range w.workers {
			k.plain = true
		}
		w.judge.atEnd = func(r *row) {
			if r.crashes > 0 {
				w.violate("a job counts %d crashes, and nothing has crashed", r.crashes)
			}
		}
	})
	require.Positive(t, s.Unclaimed)
	require.Zero(t, s.Adopted)
}
