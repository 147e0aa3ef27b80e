package permits

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// No job is admitted at any key with OnRetry Wait of a job that waits for its retry, whatever the capacity.
func TestSequenceIsKeptAtEachOfItsKeys(t *testing.T) {
	w := newWorld(t, Limit{Key: "s:*", Capacity: 5, OnRetry: Wait}, Limit{Key: "pool", Capacity: 5})
	w.Returned(Class{Keys: "s:1 s:2 pool", Type: "a"}, Job{w.now + 10_000_000, 100}, 1)
	for _, keys := range []string{"s:1", "s:2", "pool", "s:3"} {
		w.add(keys, "a")
	}
	w.admits(3, 4)
	w.Returned(Class{Keys: "s:2", Type: "a"}, Job{w.now, 101}, 1)
	w.admits(101) // it also waits for its retry, and is due before
	w.pass(10)
	w.admits(100, 1, 2)
}

// A row is reported again, with another run_at, or after it was read as an ordinary one.
func TestReturnedJobIsKnownOnce(t *testing.T) {
	w := newWorld(t, Limit{Key: "s", Capacity: 1, OnRetry: Wait})
	for _, keys := range []string{"s", "k"} {
		class := Class{Keys: keys, Type: "a"}
		w.Add(class, Job{w.now - 5, 100})
		for i := range int64(3) {
			require.Equal(t, keys == "s", w.Returned(class, Job{w.now + 1_000_000*(3-i), 100}, 1))
			w.Add(class, Job{w.now - 5, 200}) // another job
			require.Equal(t, keys == "s", w.Add(class, Job{w.now - 5, 200}) && len(w.classes) == 2, "the row is in one class")
			if keys == "s" {
				w.Add(class, Job{w.now - 5, 100})
				require.Len(t, w.classes[class].jobs, 1, "a late answer does not add the row again")
			}
			w.Gone(class, 200)
		}
		w.admits()
		w.pass(1)
		w.admits(100)
		w.end(100)
		for _, r := range w.Refills(10) {
			w.Filled(r, nil, false)
		}
		require.Zero(t, w.Classes())
	}
}

// A permit that keeps its precedence is not withdrawn for a job of another type, but if its dispatcher cannot claim the row.
func TestWithdrawnRetryKeepsItsPrecedence(t *testing.T) {
	w := newWorld(t, Limit{Key: "s", Capacity: 1, OnRetry: Wait, Scope: Dispatcher})
	w.SetTypes(map[string]Type{"a": {Most: 5, Dispatchers: []int32{1}}, "b": {Most: 5, Dispatchers: []int32{1}}})
	w.Returned(Class{Keys: "s", Type: "a"}, Job{w.now, 100}, 1)
	w.admits(100)
	other := w.add("s", "b")
	w.pass(1)
	require.Empty(t, w.Withdrawals())
	w.SetTypes(map[string]Type{"a": {Most: 5, Dispatchers: []int32{2}}, "b": {Most: 5, Dispatchers: []int32{1}}})
	w.pass(1)
	require.Len(t, w.Withdrawals(), 1)
	w.Withdrawn(100, w.fences[100])
	w.admits(100, other)
	require.EqualValues(t, 2, w.permits[100].Dispatcher)
}

// When the scope of a limit changes, permits and starts are counted once.
func TestChangedScopeCountsAnew(t *testing.T) {
	limit := Limit{Key: "k", Capacity: 2, Rate: 4, Per: 100_000_000, Scope: Dispatcher}
	w := newWorld(t, limit)
	w.SetTypes(map[string]Type{"a": {Most: 9, Dispatchers: []int32{1, 2}}})
	for range 9 {
		w.add("k", "a")
	}
	w.admits(1, 2, 3, 4)
	for id := int64(1); id <= 4; id++ {
		w.start(id)
	}
	limit.Scope = Cluster
	w.SetLimits([]Limit{limit})
	s, _ := w.Key("k")
	require.Equal(t, []int64{4, 4}, []int64{s.Held, s.Started})
	w.end(1)
	w.end(2)
	w.end(3)
	w.admits() // four have started
	limit.Scope = Dispatcher
	w.SetLimits([]Limit{limit})
	s, _ = w.Key("k")
	require.Equal(t, []int64{1, 4}, []int64{s.Held, s.Started})
	w.admits() // earlier starts count at each dispatcher
	w.pass(101)
	w.admits(5, 6, 7)
}
