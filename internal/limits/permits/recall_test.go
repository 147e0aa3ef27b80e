package permits

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// withdraws tests which rows are withdrawn now, in any order, and makes them wait again.
func (w *world) withdraws(want ...int64) {
	w.t.Helper()
	var got []int64
	for _, p := range w.Withdrawals() {
		got = append(got, p.ID)
		w.Withdrawn(p.ID, p.Fence)
	}
	slices.Sort(got)
	require.Equal(w.t, fmt.Sprint(want), fmt.Sprint(got))
}

// Ten jobs were admitted, of which two have started. The limit becomes 4: the six with the last ranks wait again.
func TestLoweredCapacityRecallsTheLastRanks(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 10})
	for range 10 {
		w.add("k", "a")
	}
	w.admits(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	w.start(3)
	w.start(9)
	w.SetLimits([]Limit{{Key: "k", Capacity: 4}})
	w.withdraws(4, 5, 6, 7, 8, 10)
	w.admits()
	w.end(3)
	w.admits(4)
}

// A rate is lowered below what has started and what is admitted.
func TestLoweredRateRecallsTheLastRanks(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: Unlimited, Rate: 6, Per: 60_000_000})
	for range 6 {
		w.add("k", "a")
	}
	w.admits(1, 2, 3, 4, 5, 6)
	w.start(2)
	w.SetLimits([]Limit{{Key: "k", Capacity: Unlimited, Rate: 2, Per: 60_000_000}})
	w.withdraws(3, 4, 5, 6)
	w.SetLimits([]Limit{{Key: "k", Capacity: Unlimited, Rate: 1, Per: 60_000_000}})
	w.withdraws(1)
}

// The pause of a key leaves no permit that may start.
func TestPausedKeyRecallsAllThatHaveNotStarted(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 100})
	for range 64 {
		w.add("k", "a")
	}
	require.Len(t, w.Admit(100), 64)
	w.SetLimits([]Limit{{Key: "k", Capacity: 0}})
	require.Len(t, w.Withdrawals(), 64)
}

// A recalled job is first again, and others do not pass it for the patience.
func TestRecalledJobKeepsItsRank(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 2})
	first, second := w.add("k", "a"), w.add("k", "a")
	w.admits(first, second)
	w.SetLimits([]Limit{{Key: "k", Capacity: 1}})
	w.withdraws(second)
	third := w.add("k", "b")
	w.SetLimits([]Limit{{Key: "k", Capacity: 3}})
	w.admits(second, third)
}

// A row that was locked while it was to be withdrawn keeps its permit, if the limit is raised again.
func TestRaisedLimitRecallsNothing(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 2})
	w.add("k", "a")
	w.add("k", "a")
	w.admits(1, 2)
	w.SetLimits([]Limit{{Key: "k", Capacity: 5}})
	require.Empty(t, w.Withdrawals())
	w.SetLimits([]Limit{{Key: "k", Capacity: 1}})
	require.Len(t, w.Withdrawals(), 1) // the row is locked
	w.SetLimits([]Limit{{Key: "k", Capacity: 2}})
	w.pass(1)
	require.Empty(t, w.Withdrawals())
}

// The limit was lowered while no dispatcher led. The next one reads the permits and recalls those that exceed the limit.
func TestTakeoverRecallsWhatExceedsTheLimit(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 1})
	for id := range int64(3) {
		w.Hold(Permit{Class: Class{Keys: "k", Type: "a"}, Job: Job{w.now, id + 1}, Fence: 1, Started: id == 2})
	}
	w.fences = map[int64]int64{1: 1, 2: 1, 3: 1}
	w.withdraws(1, 2)
}

// scoped is a world with two dispatchers, of which each may run 100 jobs of the key disk.
func scoped(t *testing.T) *world {
	w := newWorld(t, Limit{Key: "disk", Capacity: 100, Scope: Dispatcher})
	w.SetTypes(map[string]Type{"a": {Most: 100, Dispatchers: []int32{1, 2}}})
	return w
}

// at returns the rows that only a dispatcher may claim, ascending.
func (w *world) at(dispatcher int32) (ids []int64) {
	for id, p := range w.permits {
		if p.Dispatcher == dispatcher && !p.Started {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// All slots of dispatcher 1 are busy, and dispatcher 2 starts each job at once. After a second, those of dispatcher 1 move, and so do
// further jobs.
func TestPinnedRowMovesToADispatcherWithRoom(t *testing.T) {
	w := scoped(t)
	for range 40 {
		w.add("disk", "a")
	}
	for _, a := range w.Admit(100) {
		w.fences[a.ID] = a.Fence
	}
	stuck := w.at(1)
	require.Len(t, stuck, 20)
	for _, id := range w.at(2) {
		w.start(id)
		w.end(id)
	}
	w.pass(1)
	w.withdraws(stuck...)
	w.admits(stuck...)
	require.Empty(t, w.at(1))
	w.admits()
	next := w.add("disk", "a")
	w.admits(next)
	require.EqualValues(t, 2, w.permits[next].Dispatcher)
}

// No dispatcher has a free slot. The rows stay where they are.
func TestPinnedRowDoesNotOscillate(t *testing.T) {
	w := scoped(t)
	for range 7 {
		w.add("disk", "a")
	}
	require.Len(t, w.Admit(100), 7)
	for range 30 {
		w.pass(1)
		for _, p := range w.Withdrawals() {
			w.Withdrawn(p.ID, p.Fence)
		}
		w.Admit(100)
		require.InDelta(t, len(w.at(1)), len(w.at(2)), 1)
	}
	before := fmt.Sprint(w.at(1))
	w.pass(1)
	require.Empty(t, w.Withdrawals())
	require.Equal(t, before, fmt.Sprint(w.at(1)))
}

// A dispatcher that was busy starts jobs again. Its share of the rows moves back from the one that is busy now.
func TestBusyDispatcherGetsRowsAgain(t *testing.T) {
	w := scoped(t)
	for range 40 {
		w.add("disk", "a")
	}
	for _, a := range w.Admit(100) {
		w.fences[a.ID] = a.Fence
	}
	for _, id := range w.at(2) {
		w.start(id)
		w.end(id)
	}
	for range 2 { // dispatcher 1 is busy, then dispatcher 2 with the rows of both
		w.pass(1)
		for _, p := range w.Withdrawals() {
			w.Withdrawn(p.ID, p.Fence)
		}
		for _, a := range w.Admit(100) {
			w.fences[a.ID] = a.Fence
		}
	}
	require.Len(t, w.at(1), 10)
	for _, id := range w.at(1) {
		w.start(id)
	}
	stuck := w.at(2)
	w.pass(1)
	w.withdraws(stuck...)
}
