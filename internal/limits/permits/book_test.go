package permits

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Several arrivals and a cancelled job.
func TestArrivalsAreReadAndGoneJobsForgotten(t *testing.T) {
	w := newWorld(t)
	class := Class{Keys: "k", Type: "a"}
	require.True(t, w.Arrived(class, Job{1, 1}, true))
	w.admits(1)
	r := w.Refills(1)
	require.Equal(t, class, r[0].Class)
	require.Equal(t, Job{1, 1}, r[0].After)
	w.Filled(r[0], []Job{{1, 2}, {1, 3}}, false)
	w.Gone(class, 2)
	w.end(1)
	w.admits(3)
}

// An operator changes the priority of a waiting job, so it is known in two classes.
func TestJobInTwoClassesGetsItsPermitsOnce(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 2})
	w.Add(Class{Keys: "k", Type: "a"}, Job{1, 1})
	w.Add(Class{Keys: "k", Type: "a", Priority: 1}, Job{1, 1})
	w.admits(1)
	w.end(1)
	w.Add(Class{Keys: "k*2", Type: "a"}, Job{2, 2})
	w.admits(2)
}

// fullWorld returns a world whose book knows two classes. It is full of such that take no part.
func fullWorld(t *testing.T, aside func(i int64) (Class, Job)) *world {
	w := newWorld(t, Limit{Key: "paused:*"}, Limit{Key: "s", Capacity: 1, OnRetry: Wait})
	w.config.MaxClasses = 2
	w.SetTypes(map[string]Type{"a": {Most: 9}})
	w.Returned(Class{Keys: "s", Type: "a"}, Job{w.now + 3_600_000_000, 200}, 1) // it counts beside the bound
	for i := range int64(2) {
		name, j := aside(i)
		require.True(t, w.Add(name, j))
	}
	name, j := aside(2)
	require.False(t, w.Add(name, j))
	return w
}

// A full book accepts a job that may run, instead of a class that takes no part. That class is found later.
func TestFullBookReplacesClassesThatTakeNoPart(t *testing.T) {
	const due = 1_000_000_000
	for name, aside := range map[string]func(i int64) (Class, Job){
		"not due": func(i int64) (Class, Job) {
			return Class{Keys: fmt.Sprint("k", i), Type: "a"}, Job{due + 1 + i, 100 + i}
		},
		"paused":       func(i int64) (Class, Job) { return Class{Keys: fmt.Sprint("paused:", i), Type: "a"}, Job{due, 100 + i} },
		"too costly":   func(i int64) (Class, Job) { return Class{Keys: fmt.Sprintf("k%d*2", i), Type: "a"}, Job{due, 100 + i} },
		"unknown type": func(i int64) (Class, Job) { return Class{Keys: fmt.Sprint("k", i), Type: "b"}, Job{due, 100 + i} },
	} {
		w := fullWorld(t, aside)
		first := w.add("x", "a")
		w.admits(first)
		class, job := aside(1)
		require.Equal(t, NotRead, w.Explain(class, job).Reason, name)
		w.SetLimits([]Limit{{Key: "k*", Capacity: 9}, {Key: "s", Capacity: 1, OnRetry: Wait}})
		w.SetTypes(nil)
		w.pass(1)
		w.admits(100)
		require.True(t, w.Head(class, job))
		w.admits(101)
	}
}

// A class that takes part is not replaced, nor one whose job was withdrawn.
func TestFullBookKeepsClassesThatTakePart(t *testing.T) {
	w := newWorld(t)
	w.config.MaxClasses = 2
	stuck := w.add("k", "slow")
	w.admits(stuck)
	other := w.add("k", "a")
	w.pass(1)
	require.Len(t, w.Withdrawals(), 1)
	w.Withdrawn(stuck, w.fences[stuck])
	w.admits(other)
	second := w.add("k", "a")
	require.False(t, w.Add(Class{Keys: "x", Type: "a"}, Job{w.now, 50}))
	w.end(other)
	w.admits(second)
	require.True(t, w.Head(Class{Keys: "x", Type: "a"}, Job{w.now, 50}))
	w.admits(50)
}

// A retry that was withdrawn counts as returned: it keeps its precedence, also if its row is locked at the next
// admission. When it is cancelled, it is forgotten.
func TestWithdrawnRetryCountsAsReturned(t *testing.T) {
	b := New(Config{PerPriority: 64_000_000}, []Limit{{Key: "k", Capacity: 1, OnRetry: Wait}})
	name, j := Class{Keys: "k", Type: "a"}, Job{1, 1}
	b.Advance(10)
	require.True(t, b.Returned(name, j, 1))
	admit := func() (fence int64) {
		list := b.Admit(10)
		require.Len(t, list, 1)
		require.EqualValues(t, 1, list[0].ID, "no job passes it")
		return list[0].Fence
	}
	b.Withdrawn(1, admit())
	b.Add(Class{Keys: "k", Type: "a", Priority: 10}, Job{2, 2})
	b.Locked(1, admit())
	require.Empty(t, b.Admit(10))
	b.Retries(func(id int64) bool { return id == 1 })
	require.True(t, b.Returned(name, j, 1))
	b.Withdrawn(1, admit())
	b.Retries(func(int64) bool { return false })
	list := b.Admit(10)
	require.Len(t, list, 1)
	require.EqualValues(t, 2, list[0].ID)
}

// An operator changes the priority of a job that waits for its retry.
func TestRetryHasOneClass(t *testing.T) {
	b := New(Config{}, []Limit{{Key: "k", Capacity: 1, OnRetry: Wait}})
	b.Advance(10)
	require.True(t, b.Returned(Class{Keys: "k", Type: "a"}, Job{1, 1}, 1))
	require.True(t, b.Returned(Class{Keys: "k", Type: "a", Priority: 5}, Job{1, 1}, 1))
	require.Equal(t, 1, b.Classes())
	b.Retries(func(int64) bool { return false })
	require.Zero(t, b.Classes())
}

// The read of a class is answered while the first jobs of all classes are read. They do not show the job, which was inserted later.
func TestClassThatIsFilledDuringAReadOfHeadsIsKept(t *testing.T) {
	b := New(Config{}, []Limit{{Key: "k", Capacity: 1}})
	b.Advance(10)
	require.True(t, b.Arrived(Class{Keys: "k", Type: "a"}, Job{1, 1}, true))
	first := b.Admit(10)
	require.Len(t, first, 1)
	refills := b.Refills(10)
	require.Len(t, refills, 1)
	b.HeadsBegin()
	b.Filled(refills[0], []Job{{1, 2}}, false)
	b.HeadsEnd()
	b.Ended(1, first[0].Fence)
	require.Len(t, b.Admit(10), 1)
}
