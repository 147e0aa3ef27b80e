package permits

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWaitingJobsAreExplained(t *testing.T) {
	w := newWorld(t, Limit{Key: "api", Capacity: 2, Rate: 2, Per: 1_000_000}, Limit{Key: "pool", Capacity: 3}, Limit{Key: "off", Capacity: 0},
		Limit{Key: "host", Capacity: 1, Scope: Dispatcher})
	why := func(id int64, keys string) Waiting {
		w.t.Helper()
		return w.Explain(Class{Keys: keys, Type: "a"}, Job{w.now, id})
	}
	require.Equal(t, Waiting{Reason: NotRead}, why(1, "k"))
	w.add("k", "a")
	require.Equal(t, Waiting{Reason: Ready}, why(1, "k"))
	w.admits(1)
	require.Equal(t, Waiting{Reason: Admitted}, why(1, "k"))
	w.add("k", "a")
	w.add("k", "a")
	w.admits()
	require.Equal(t, Waiting{Reason: KeyBusy, Key: "k", Held: 1, Capacity: 1, Holders: []int64{1}, Ahead: 1}, why(3, "k"))
	require.Equal(t, Waiting{Reason: NotRead}, why(99, "k"))

	w.add("off", "a")
	require.Equal(t, Waiting{Reason: KeyPaused, Key: "off"}, why(4, "off"))
	w.add("api*3", "a")
	require.Equal(t, Waiting{Reason: KeyCost, Key: "api", Capacity: 2}, why(5, "api*3"))
	w.add("host", "a")
	require.Equal(t, Waiting{Reason: TypeUnknown}, why(6, "host"))
	w.Add(Class{Keys: "k", Type: "a"}, Job{w.now + 5, 70})
	require.Equal(t, Waiting{Reason: NotDue, At: w.now + 5}, w.Explain(Class{Keys: "k", Type: "a"}, Job{w.now + 5, 70}))

	w.next = 7
	for range 3 {
		w.add("api", "a")
	}
	w.admits(8, 9)
	require.Equal(
		t,
		Waiting{Reason: KeyRate, Key: "api", Held: 2, Capacity: 2, Holders: []int64{8, 9}},
		why(10, "api"),
		"it is not known when they start",
	)
	w.Started(8, w.fences[8], w.now)
	require.InDelta(t, w.now+1_000_000, why(10, "api").At, 1_000_000/windowParts+1, "up to a part of the window later")
	w.Started(9, w.fences[9], w.now+500_000)
	w.end(8)
	require.Equal(t, KeyRate, why(10, "api").Reason)
	w.Add(Class{Keys: "api*2", Type: "a"}, Job{w.now - 9, 69})
	w.Admit(0)
	require.InDelta(
		t,
		w.now+1_500_000,
		w.Explain(Class{Keys: "api*2", Type: "a"}, Job{w.now - 9, 69}).At,
		1_000_000/windowParts+1,
		"both starts must expire",
	)
	w.Gone(Class{Keys: "api*2", Type: "a"}, 69)

	w.add("pool", "a")
	w.admits(11)
	w.add("pool*3", "a")
	w.add("pool", "a")
	w.admits()
	require.Equal(t, Waiting{Reason: KeyOrder, Key: "pool", Held: 1, Capacity: 3, Holders: []int64{11}, Ahead: 1, First: 12}, why(13, "pool"))
	w.SetTypes(map[string]Type{"b": {Most: 1}})
	require.Equal(t, Waiting{Reason: TypeUnknown}, why(13, "pool"))
}

// An explanation says that a holder runs alone, that each dispatcher has the capacity, and until when a retry has precedence.
func TestExplanationNamesTheKindOfPrecedence(t *testing.T) {
	w := newWorld(
		t,
		Limit{Key: "cache", Capacity: 100},
		Limit{Key: "host", Capacity: 1, Scope: Dispatcher},
		Limit{Key: "s", Capacity: 1, OnRetry: Wait},
	)
	w.SetTypes(map[string]Type{"a": {Most: 9, Dispatchers: []int32{1, 2}}})
	why := func(id int64, keys string) Waiting { return w.Explain(Class{Keys: keys, Type: "a"}, Job{w.now, id}) }
	w.add("cache*all", "a")
	w.admits(1)
	w.add("cache", "a")
	w.admits()
	require.Equal(t, Waiting{Reason: KeyBusy, Key: "cache", Capacity: 100, Holders: []int64{1}, Alone: true}, why(2, "cache"))
	w.add("host", "a")
	w.add("host", "a")
	w.admits(3, 4)
	w.add("host", "a")
	w.admits()
	require.Equal(t, Waiting{Reason: KeyBusy, Key: "host", Held: 2, Capacity: 1, Holders: []int64{3, 4}, Scope: Dispatcher}, why(5, "host"))
	w.Returned(Class{Keys: "s", Type: "a"}, Job{w.now + 10_000_000, 100}, 1)
	w.add("s", "a")
	w.admits()
	require.Equal(t, Waiting{Reason: KeyOrder, Key: "s", Capacity: 1, Ahead: 1, First: 100, RetryAt: w.now + 10_000_000}, why(6, "s"))
}

// An explanation names the job for which a key keeps room, and the time until which others pass a job without a slot.
func TestExplanationNamesTheJobThatKeepsRoom(t *testing.T) {
	w := newWorld(t, Limit{Key: "pool", Capacity: 2})
	w.add("k", "a")
	w.admits(1)
	w.add("k pool*2", "a")
	w.admits()
	w.pass(30)
	w.add("pool", "b")
	w.admits()
	require.Equal(t, Waiting{Reason: KeyOrder, Key: "pool", Capacity: 2, First: 2}, w.Explain(Class{Keys: "pool", Type: "b"}, Job{w.now, 3}))
	w.add("k", "b")
	require.Len(t, w.Withdrawals(), 1)
	w.Withdrawn(1, w.fences[1])
	require.Equal(t, Waiting{Reason: TypeFull, At: w.now + 30_000_000}, w.Explain(Class{Keys: "k", Type: "a"}, Job{w.now - 30_000_000, 1}))
}

// The numbers of an explanation are bounded.
func TestExplanationIsBounded(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 50})
	for range 50 {
		w.add("k", "a")
	}
	w.Admit(100)
	for i := range 3000 {
		w.add("k", fmt.Sprint("t", i%300))
	}
	last := w.add("k", "z")
	e := w.Explain(Class{Keys: "k", Type: "z"}, Job{w.now, last})
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, e.Holders)
	require.Equal(t, 1000, e.Ahead)
	require.True(t, e.AtLeast, "others are before it")
	require.EqualValues(t, 50, e.Held)
}

// Of a class the book knows the first jobs only. So the place of a job behind it is at least so many.
func TestPlaceBehindUnreadJobsIsALowerBound(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 1})
	w.add("k", "a")
	w.admits(1)
	for range 3 {
		w.add("k", "a")
	}
	last := w.add("k", "z")
	explain := func() Waiting { return w.Explain(Class{Keys: "k", Type: "z"}, Job{w.now, last}) }
	require.Equal(t, 3, explain().Ahead)
	require.False(t, explain().AtLeast)
	w.Arrived(Class{Keys: "k", Type: "a"}, Job{w.now - 1, 100}, true)
	require.True(t, explain().AtLeast, "those that follow it are not read")
}

func TestKeysAreListedInOrder(t *testing.T) {
	w := newWorld(t, Limit{Key: "k:5", Capacity: 2, Rate: 9, Per: 1_000_000})
	for i := range 10 {
		w.add(fmt.Sprintf("k:%d", 9-i), "a")
	}
	w.Admit(10)
	w.Started(5, w.permits[5].Fence, w.now)
	w.add("k:5*2", "b")
	w.Admit(10)
	var names []string
	for after := ""; ; after = names[len(names)-1] {
		page := w.Keys("", after, 3)
		if len(page) == 0 {
			break
		}
		for _, k := range page {
			names = append(names, k.Name)
		}
	}
	require.Equal(t, "[k:0 k:1 k:2 k:3 k:4 k:5 k:6 k:7 k:8 k:9]", fmt.Sprint(names))
	s, ok := w.Key("k:5")
	require.True(t, ok)
	require.Equal(t, KeyState{Name: "k:5", Limit: Limit{Key: "k:5", Capacity: 2, Rate: 9, Per: 1_000_000}, Held: 1, Holders: 1, Waiting: 1,
		NextClass: Class{Keys: "k:5*2", Type: "b"}, Next: Job{w.now, 11}, Started: 1}, s)
	_, ok = w.Key("none")
	require.False(t, ok)
}
