package permits

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Attack 15: another dispatcher adopts a running job. It is counted once, at that dispatcher.
func TestAdoptedJobIsCountedOnce(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 1, Scope: Dispatcher})
	w.SetTypes(map[string]Type{"a": {Most: 9, Dispatchers: []int32{1, 2}}})
	first := w.add("k", "a")
	w.admits(first)
	require.EqualValues(t, 1, w.permits[first].Dispatcher)
	second := w.add("k", "a")
	w.admits(second)
	require.EqualValues(t, 2, w.permits[second].Dispatcher)
	third := w.add("k", "a")
	w.admits()
	w.end(second)
	w.Hold(Permit{Class: Class{Keys: "k", Type: "a"}, Job: Job{1, first}, Fence: w.fences[first], Dispatcher: 2, Started: true})
	w.Hold(Permit{Class: Class{Keys: "k", Type: "a"}, Job: Job{1, first}, Fence: w.fences[first] - 1, Dispatcher: 1}) // stale
	s, _ := w.Key("k")
	require.Equal(t, 1, s.Holders)
	require.EqualValues(t, 1, s.Held)
	w.admits(third)
	require.EqualValues(t, 1, w.permits[third].Dispatcher, "the other one is full")
	w.add("k", "a")
	w.admits()
	w.end(third)
	w.admits(4)
	w.end(4)
	w.end(first)
	require.Empty(t, w.keys)
}

// Attack 16: a clock is set back or forward by an hour. No window counts fewer starts.
func TestClockChangesExceedNoWindow(t *testing.T) {
	w := newWorld(t, Limit{Key: "api", Capacity: Unlimited, Rate: 2, Per: 1_000_000})
	for range 6 {
		w.add("api", "a")
	}
	w.admits(1, 2)
	w.Started(1, w.fences[1], w.now-3_600_000_000)
	w.Started(2, w.fences[2], w.now+3_600_000_000)
	w.Advance(w.now - 3_600_000_000)
	w.admits()
	w.pass(0.9)
	w.admits()
	w.pass(0.2)
	w.admits(3) // the start of 2 is in the future: it counts until then
	w.start(3)
	w.pass(1800)
	w.admits(4)
	w.start(4)
	w.pass(1802)
	w.admits(5, 6)
}

// Attack 17: a rate of one per hour, and a takeover.
func TestTakeoverForgetsNoStart(t *testing.T) {
	limit := Limit{Key: "k", Capacity: Unlimited, Rate: 1, Per: 3_600_000_000}
	w := newWorld(t, limit)
	started := w.now
	w.pass(1800)
	w.Starts("k", 3, started, 1)
	w.Starts("k", 3, started-3_700_000_000, 1) // in no window
	w.Starts("unlimited", 3, started, 1)
	require.Len(t, w.keys, 1)
	job := w.add("k", "a")
	w.admits()
	require.Equal(t, KeyRate, w.Explain(Class{Keys: "k", Type: "a"}, Job{w.now, job}).Reason)
	w.pass(1799)
	w.admits()
	w.pass(1 + 3600.0/windowParts)
	w.admits(job)
}

// Attack 18: a job names the same key twice. The costs add up.
func TestCostsOfEqualKeysAddUp(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 3})
	w.add("k k", "a")
	w.add("k k*2", "a")
	w.add("k*2 k*2", "a")
	w.admits(1)
	w.end(1)
	w.admits(2)
	w.SetLimits([]Limit{{Key: "k", Capacity: 7}})
	w.admits(3)
	s, _ := w.Key("k")
	require.EqualValues(t, 7, s.Held)
}

// Attack 19: a million jobs wait for capacity 1, which is raised to 1,000.
func TestRaisedCapacityIsReachedInOneDecision(t *testing.T) {
	w := newWorld(t)
	class := Class{Keys: "k", Type: "a"}
	w.Arrived(class, Job{1, 1}, true)
	w.admits(1)
	w.SetLimits([]Limit{{Key: "k", Capacity: 1000}})
	admitted, reads := 1, 0
	for range 100 {
		admitted += len(w.Admit(1000))
		for _, r := range w.Refills(10) {
			reads++
			w.Filled(r, jobsAfter(r.After, 1_000_000, 64), true)
		}
	}
	require.Equal(t, 1000, admitted)
	require.LessOrEqual(t, reads, 20)
	require.LessOrEqual(t, len(w.classes[class].jobs), keptJobs+keptJobs/4)
}

// Attack 20: weights are changed. A new book ranks the jobs anew.
func TestChangedWeightsRankJobsAnew(t *testing.T) {
	for perPriority, want := range map[int64]int64{1_000_000: 2, 64_000_000: 3} {
		w := newWorld(t)
		w.Book = New(Config{Patience: 30_000_000, PerPriority: perPriority}, nil)
		w.Advance(1_000_000_000)
		class := Class{Keys: "k", Type: "a"}
		w.Hold(Permit{Class: class, Job: Job{1, 1}, Fence: 1, Started: true})
		w.Arrived(class, Job{w.now - 10_000_000, 2}, true)
		w.Arrived(Class{Keys: "k", Type: "a", Priority: 1}, Job{w.now, 3}, true)
		w.admits()
		w.Ended(1, 1)
		w.admits(want)
	}
}

// Attack 21: a sequence, and a takeover while a job waits for its retry.
func TestSequenceKeepsItsOrderOverATakeover(t *testing.T) {
	limits := []Limit{{Key: "order:*", Capacity: 1, OnRetry: Wait}, {Key: "pool", Capacity: 2}}
	class := Class{Keys: "pool order:1", Type: "a"}
	w := newWorld(t, limits...)
	first, second := w.add(class.Keys, "a"), w.add(class.Keys, "a")
	w.admits(first)
	w.start(first)
	retry := Job{w.now + 60_000_000, first}
	require.False(t, w.Returned(class, retry, w.fences[first]+1), "the report is stale")
	require.True(t, w.Returned(class, retry, w.fences[first]))
	w.admits()
	require.Equal(t, Waiting{Reason: KeyOrder, Key: "order:1", Capacity: 1, Ahead: 1, First: first, RetryAt: retry.RunAt},
		w.Explain(class, Job{w.now, second}))
	require.Equal(t, Waiting{Reason: NotDue, At: retry.RunAt}, w.Explain(class, retry))

	next := newWorld(t, limits...)
	next.Add(class, Job{next.now, second})
	require.True(t, next.Returned(class, retry, 1))
	for _, w := range []*world{w, next} {
		w.SetTypes(map[string]Type{}) // the only worker of the type restarts
		w.Add(Class{Keys: "order:1", Type: "b"}, Job{w.now, 99})
		w.SetTypes(map[string]Type{"b": {Most: 1}})
		w.admits()
		w.SetTypes(nil)
		for id := int64(50); id < 52; id++ {
			w.Add(Class{Keys: "pool", Type: "b"}, Job{w.now, id})
		}
		w.admits(50, 51) // nothing else waits for the retry
		w.pass(59)
		w.Add(Class{Keys: "pool", Type: "b"}, Job{w.now, 52})
		w.admits()
		w.pass(1)
		w.admits()
		require.Equal(t, "pool", w.Explain(class, retry).Key)
		w.end(50)
		w.admits(first)
		w.end(51)
		w.admits() // second is older than the patience: room is kept for it
		w.end(first)
		w.admits(second, 52)
	}
}

// A job with OnRetry Pass waits like others of its class.
func TestRetryIsPassed(t *testing.T) {
	w := newWorld(t)
	first, second := w.add("k", "a"), w.add("k", "a")
	w.admits(first)
	require.False(t, w.Returned(Class{Keys: "k", Type: "a"}, Job{w.now + 1_000_000, first}, w.fences[first]))
	w.admits(second)
	w.end(second)
	w.admits()
	w.pass(1)
	w.admits(first)
}

// A sequence ends when its job is cancelled, and can be ended by its limit.
func TestSequenceEndsWithItsJobOrLimit(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 1, OnRetry: Wait})
	class := Class{Keys: "k", Type: "a"}
	w.Returned(class, Job{w.now + 1_000_000_000, 100}, 1)
	first := w.add("k", "a")
	w.Add(class, Job{w.now + 1_000_000_000, 100}) // read again
	w.admits()
	w.Gone(class, 100)
	w.admits(first)
	w.end(first)
	w.Returned(class, Job{w.now + 1_000_000_000, 100}, 1)
	second := w.add("k", "a")
	w.admits()
	w.SetLimits(nil)
	w.admits(second)
	w.end(second)
	w.pass(1000)
	w.admits(100)
	require.Len(t, w.permits, 1)
	require.Empty(t, w.classes)
	require.Empty(t, w.retries)
}

// Attack 22: a job is cancelled while admitted, or while it waits.
func TestCancelledJobReturnsItsPermit(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.add("k", "a")
	}
	w.admits(1)
	w.Gone(Class{Keys: "k", Type: "a"}, 1) // the claim decides whether it was cancelled
	w.Gone(Class{Keys: "k", Type: "a"}, 2)
	w.Gone(Class{Keys: "other", Type: "a"}, 2)
	w.admits()
	w.Unused(1, w.fences[1])
	w.admits(3)
}

// A job that is not due blocks no other.
func TestJobThatIsNotDueBlocksNoOther(t *testing.T) {
	w := newWorld(t)
	w.Add(Class{Keys: "k", Type: "a", Priority: 9}, Job{w.now + 5_000_000, 10})
	now := w.add("k", "a")
	w.admits(now)
	w.end(now)
	at, ok := w.Next()
	require.True(t, ok)
	require.Equal(t, w.now+5_000_000, at)
	w.Advance(at - 1)
	w.admits()
	w.Advance(at)
	late := w.add("k", "a")
	w.admits(10)
	w.end(10)
	w.admits(late)
}

// At most so many rows of a type wait for a slot. The others block no key, and the first is admitted when one starts.
func TestFullTypeBlocksNoOtherJob(t *testing.T) {
	w := newWorld(t)
	w.SetTypes(map[string]Type{"slow": {Most: 2}, "fast": {Most: 9}})
	for i := range 4 {
		w.add(fmt.Sprintf("k%d", i), "slow")
	}
	w.admits(1, 2)
	fast := w.add("k2", "fast")
	w.admits(fast)
	require.Equal(t, Waiting{Reason: TypeFull, Ahead: 1}, w.Explain(Class{Keys: "k3", Type: "slow"}, Job{w.now, 4}))
	w.start(1)
	w.admits(4) // the key of 3 is not free
	w.SetTypes(map[string]Type{"slow": {Most: 3}, "fast": {Most: 9}})
	w.admits()
	w.end(fast)
	w.admits(3)
}

// Jobs of another type never stop to arrive at the key of a job whose type is mostly full.
func TestNoJobOfAFullTypeStarves(t *testing.T) {
	w := newWorld(t)
	w.SetTypes(map[string]Type{"slow": {Most: 1}, "fast": {Most: 9}})
	w.add("other", "slow")
	w.admits(1)
	victim := w.add("k", "slow")
	for step := range 100 {
		w.pass(1)
		w.add("k", "fast")
		w.add(fmt.Sprint("other", step), "slow")
		for _, a := range w.Admit(10) {
			w.fences[a.ID] = a.Fence
			if a.ID == victim {
				require.GreaterOrEqual(t, step, 25, "others pass for the patience")
				return
			}
		}
		var starts []int64
		for id, p := range w.permits {
			if p.Type == "slow" {
				starts = append(starts, id)
			}
		}
		require.LessOrEqual(t, len(starts), 1)
		if step%2 == 0 { // the slot becomes free while the key is taken
			for _, id := range starts {
				w.end(id)
			}
		}
		if step%2 == 1 {
			for id, p := range w.permits {
				if p.Type == "fast" {
					w.end(id)
				}
			}
		}
	}
	t.Fatal("the job has not been admitted")
}

// With several limits for each dispatcher, a job gets all its permits at one of them.
func TestJobGetsItsPermitsAtOneDispatcher(t *testing.T) {
	w := newWorld(t, Limit{Key: "gpu", Capacity: 1, Scope: Dispatcher}, Limit{Key: "disk", Capacity: 1, Scope: Dispatcher})
	w.SetTypes(map[string]Type{"a": {Most: 9, Dispatchers: []int32{4, 7}}, "b": {Most: 9, Dispatchers: []int32{7}}})
	gpu, disk := w.add("gpu", "a"), w.add("disk", "b")
	w.admits(gpu, disk)
	require.EqualValues(t, 4, w.permits[gpu].Dispatcher)
	require.EqualValues(t, 7, w.permits[disk].Dispatcher)
	both := w.add("gpu disk", "a")
	w.admits()
	require.Equal(t, KeyBusy, w.Explain(Class{Keys: "gpu disk", Type: "a"}, Job{w.now, both}).Reason)
	w.end(disk)
	w.admits(both)
	require.EqualValues(t, 7, w.permits[both].Dispatcher)
	w.SetTypes(map[string]Type{"a": {Most: 9, Dispatchers: []int32{4}}}) // it leaves before it has claimed the row
	w.pass(1)
	require.Equal(t, both, w.Withdrawals()[0].ID)
	w.Withdrawn(both, w.fences[both])
	w.admits()
	w.end(gpu)
	w.admits(both)
	require.EqualValues(t, 4, w.permits[both].Dispatcher)
	w.SetLimits([]Limit{{Key: "gpu", Capacity: 2}})
	w.SetTypes(nil)
	next := w.add("gpu", "a")
	w.admits(next)
	require.Zero(t, w.permits[next].Dispatcher)
}
