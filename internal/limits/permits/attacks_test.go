package permits

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// world admits, starts and ends jobs by id.
type world struct {
	*Book

	t      *testing.T
	next   int64
	fences map[int64]int64
}

func newWorld(t *testing.T, list ...Limit) *world {
	b := New(Config{Patience: 30_000_000, PerPriority: 64_000_000}, list)
	b.Advance(1_000_000_000)
	return &world{Book: b, t: t, fences: map[int64]int64{}}
}

// add adds a job that is due now and returns its id.
func (w *world) add(keys, typ string) int64 {
	w.next++
	w.Add(Class{Keys: keys, Type: typ}, Job{w.now, w.next})
	return w.next
}

// admits tests which jobs are admitted now, in order.
func (w *world) admits(want ...int64) {
	w.t.Helper()
	var got []int64
	for _, a := range w.Admit(1000) {
		got = append(got, a.ID)
		w.fences[a.ID] = a.Fence
	}
	require.Equal(w.t, fmt.Sprint(want), fmt.Sprint(got))
}

func (w *world) start(id int64)       { w.Started(id, w.fences[id], w.now) }
func (w *world) end(id int64)         { w.Ended(id, w.fences[id]) }
func (w *world) pass(seconds float64) { w.Advance(w.now + int64(seconds*1e6)) }

// Attack 1: a limit is lowered below the number of holders.
func TestLowerCapacityStopsNoHolder(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 10})
	for range 8 {
		w.add("k", "a")
	}
	w.admits(1, 2, 3, 4, 5, 6, 7, 8)
	w.SetLimits([]Limit{{Key: "k", Capacity: 2}})
	next := w.add("k", "a")
	for id := int64(1); id <= 6; id++ {
		w.end(id)
		w.admits()
	}
	w.end(7)
	w.admits(next)
}

// Attack 2: a job costs more than the limit.
func TestCostAboveTheCapacityBlocksNoOtherJob(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 3})
	heavy := w.add("k*5", "a")
	light := w.add("k", "a")
	w.admits(light)
	w.SetLimits([]Limit{{Key: "k", Capacity: 6}})
	w.admits(heavy)
}

// Attack 3: the row of a limit is deleted.
func TestKeyWithoutLimitIsNeverUnlimited(t *testing.T) {
	w := newWorld(t, Limit{Key: "tenant:*", Capacity: 2}, Limit{Key: "tenant:1", Capacity: Unlimited})
	for range 3 {
		w.add("tenant:1", "a")
	}
	w.SetLimits([]Limit{{Key: "tenant:*", Capacity: 2}})
	w.admits(1, 2)
	w.SetLimits(nil)
	w.end(1)
	w.admits()
	w.end(2)
	w.admits(3)
}

// Attack 4: a prefix is paused.
func TestPausedKeysResumeInOrder(t *testing.T) {
	w := newWorld(t, Limit{Key: "tenant:*", Capacity: 0})
	for i := range 100 {
		w.add(fmt.Sprintf("tenant:%d", i%10), "a")
	}
	w.admits()
	w.SetLimits([]Limit{{Key: "tenant:*", Capacity: 1}})
	w.admits(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
}

// Attack 5: a heavy job waits among endless small jobs. It waits for the holders only.
func TestHeavyJobIsNotPassedByLightOnes(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 4})
	for range 4 {
		w.add("k", "a")
	}
	w.admits(1, 2, 3, 4)
	heavy := w.add("k*4", "a")
	writer := w.add("k*all", "a")
	for range 4 {
		w.add("k", "a")
	}
	for id := int64(1); id <= 3; id++ {
		w.end(id)
		w.admits()
	}
	w.end(4)
	w.admits(heavy)
	w.end(heavy)
	w.admits(writer)
	w.end(writer)
	w.admits(7, 8, 9, 10)
}

// Attack 6: jobs name the same keys in different orders.
func TestOppositeOrdersOfKeysDoNotDeadlock(t *testing.T) {
	w := newWorld(t)
	ended := 0
	for range 1000 {
		w.add("x y", "a")
		w.add("y x", "b")
	}
	for ended < 2000 {
		admitted := w.Admit(10)
		require.Len(t, admitted, 1, "after %d jobs", ended)
		w.Ended(admitted[0].ID, admitted[0].Fence)
		ended++
		for _, r := range w.Refills(10) {
			var jobs []Job
			for id := r.After.ID + 2; id <= 2000; id += 2 {
				jobs = append(jobs, Job{w.now, id})
			}
			w.Filled(r, jobs[:min(len(jobs), 10)], len(jobs) > 10)
		}
	}
	require.Empty(t, w.keys)
	require.Empty(t, w.classes)
}

// Attack 7: no slot supports the type of the first job.
func TestJobOfAnUnknownTypeBlocksNoOtherJob(t *testing.T) {
	w := newWorld(t)
	unknown := w.add("k", "rare")
	known := w.add("k", "a")
	w.SetTypes(map[string]Type{"a": {Most: 9}})
	w.admits(known)
	w.end(known)
	w.SetTypes(map[string]Type{"a": {Most: 9}, "rare": {Most: 9}})
	w.admits(unknown)
}

// Attack 8: the first job finds no free slot for an hour.
func TestJobWithoutASlotIsPassedForThePatience(t *testing.T) {
	w := newWorld(t)
	stuck := w.add("k", "slow")
	w.admits(stuck)
	other := w.add("k", "a")
	w.admits()
	w.pass(1)
	withdrawn := w.Withdrawals()
	require.Len(t, withdrawn, 1)
	w.Withdrawn(stuck, withdrawn[0].Fence)
	w.admits(other)
	w.pass(1)
	require.Empty(t, w.Withdrawals(), "no job of another type waits")
	w.end(other)
	for range 29 { // others pass it
		next := w.add("k", "a")
		w.admits(next)
		w.end(next)
		w.pass(1)
	}
	last := w.add("k", "a")
	w.admits(stuck)
	for range 29 { // its permit is kept
		w.pass(1)
		require.Empty(t, w.Withdrawals())
		w.admits()
	}
	w.pass(1)
	require.Len(t, w.Withdrawals(), 1)
	w.Withdrawn(stuck, w.fences[stuck])
	w.admits(last)
}

// Attack 9: the report of a stale execution returns no permit.
func TestStaleFenceReturnsNoPermit(t *testing.T) {
	w := newWorld(t)
	first := w.add("k", "a")
	w.admits(first)
	stale := w.fences[first]
	w.end(first) // its worker died: the row waits again
	w.Add(Class{Keys: "k", Type: "a"}, Job{w.now, first})
	w.admits(first)
	require.Greater(t, w.fences[first], stale)
	w.add("k", "a")
	w.Ended(first, stale)
	w.Unused(first, stale)
	w.admits()
}

// A rate holds in any window, also for admitted jobs that start late.
func TestRateHoldsInEveryWindow(t *testing.T) {
	w := newWorld(t, Limit{Key: "api", Capacity: Unlimited, Rate: 3, Per: 1_000_000})
	for range 8 {
		w.add("api", "a")
	}
	w.admits(1, 2, 3)
	w.pass(10) // none has started
	w.admits()
	w.start(1)
	w.start(2)
	w.end(1)
	w.pass(0.9)
	w.start(3)
	w.admits()
	w.pass(0.1 + 1.0/windowParts)
	w.admits(4, 5)
	at, ok := w.Next()
	require.True(t, ok)
	w.Advance(at) // the start of 3 expires
	w.admits(6)
	w.Unused(4, w.fences[4])
	w.admits(7)
}

// A job with several keys keeps room at each of them when it has waited for the patience. So small jobs
// cannot pass it for ever.
func TestOldJobWithSeveralKeysKeepsRoom(t *testing.T) {
	w := newWorld(t, Limit{Key: "pool", Capacity: 2})
	holder := w.add("tenant", "a")
	w.admits(holder)
	both := w.add("tenant pool*2", "a")
	w.admits()
	small := w.add("pool", "b")
	w.admits(small) // the pool does not wait for the tenant
	w.pass(30)
	w.end(small)
	late := w.add("pool", "b")
	w.admits()
	w.end(holder)
	w.admits(both)
	w.end(both)
	w.admits(late)
}

// Endless arrivals at each of its keys delay no job for ever.
func TestNoJobWithSeveralKeysStarves(t *testing.T) {
	w := newWorld(t, Limit{Key: "x", Capacity: 2}, Limit{Key: "y", Capacity: 2}, Limit{Key: "r", Capacity: Unlimited, Rate: 2, Per: 1_000_000})
	victim := w.add("x*2 y*2 r*2", "a")
	running := []int64{}
	w.pass(0.001)
	for step := range 2000 {
		for _, keys := range []string{"x", "y", "r", "x y", "y r"} {
			w.add(keys, fmt.Sprint(keys, step%7))
		}
		for _, a := range w.Admit(1000) {
			if a.ID == victim {
				require.Less(t, step, 400)
				return
			}
			w.fences[a.ID] = a.Fence
			w.start(a.ID)
			running = append(running, a.ID)
		}
		if len(running) > 3 { // the jobs overlap, so no key is free for long
			w.end(running[0])
			running = running[1:]
		}
		w.pass(0.1)
	}
	t.Fatal("the job has not been admitted")
}

func TestInvalidKeysAreRejectedWithTheRule(t *testing.T) {
	for keys, word := range map[string]string{
		"": "", "a  b": "", "*2": "*2", "a*0": "a*0", "a b*01": "b*01", "a*+1": "a*+1", "a*-1": "a*-1", "a*1000001": "a*1000001",
		"a*": "a*", "a*b*c": "a*b*c",
	} {
		_, err := Parse(keys)
		require.EqualError(t,
			err,
			fmt.Sprintf("keys: the word %q is not KEY, KEY*COST or KEY*all: KEY has 1 to 128 characters without blanks, control characters and *, "+
				"COST is 1 to 1000000, and one blank separates words, for example 'tenant:42 stripe*3'", word),
			"%q",
			keys,
		)
	}
	_, err := Parse("a b c d e")
	require.EqualError(t, err, "keys have 5 words and 9 bytes: use at most 4 words and 1000 bytes, for example 'tenant:42 stripe*3'")
	needs, err := Parse("a*2 b a*3 c*all")
	require.NoError(t, err)
	require.Equal(t, []Need{{"a", 5}, {"b", 1}, {"c", All}}, needs)
}

// A key is forgotten when nothing needs it, also if its rate is removed while its window counts starts.
func TestUnusedKeysAreForgotten(t *testing.T) {
	w := newWorld(t, Limit{Key: "api", Capacity: 1, Rate: 2, Per: 1_000_000})
	for range 2 {
		id := w.add("api", "a")
		w.admits(id)
		w.start(id)
		w.end(id)
	}
	require.Len(t, w.keys, 1, "the window counts")
	w.SetLimits(nil)
	require.Empty(t, w.keys)
}
