package actor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// counter counts the portions of an answer. It calls between before each portion after
// the first one.
type counter struct {
	core    *Core
	asks    int
	between func(asks int)
}

func (c *counter) Ask(f func(*Core)) bool {
	if c.asks > 0 && c.between != nil {
		c.between(c.asks)
	}
	c.asks++
	f(c.core)
	return true
}

// ended is the Asker of a loop that ends after some portions.
type ended struct {
	core *Core
	asks int
}

func (e *ended) Ask(f func(*Core)) bool {
	if e.asks--; e.asks < 0 {
		return false
	}
	f(e.core)
	return true
}

func TestListOfTypesIsReadInPortions(t *testing.T) {
	s := newStepper(t, 100)
	s.register(1, 1, 200, none)
	asked := &counter{core: s.core}
	require.Len(t, ListTypes(asked), 200)
	require.Equal(t, 200/5, asked.asks, "100 / (1 + 1 + 20), rounded up")
}

func TestListOfSlotsIsReadInPortions(t *testing.T) {
	s := newStepper(t, 100)
	s.register(1, 200, 3, none)
	asked := &counter{core: s.core}
	list := ListSlots("", asked)
	require.Equal(t, 200/8, asked.asks, "100 / (1 + 10 + 3), rounded up, at a time")
	require.Len(t, list, 200)
	for i := range list {
		require.EqualValues(t, i+1, list[i].Slot)
	}
}

func TestSlotsOfATypeAreListed(t *testing.T) {
	s := newStepper(t, 100)
	s.register(1, 30, 1, none)
	s.register(2, 30, 2, none)
	for typ, want := range map[string]int{"": 60, typeName(0): 60, typeName(1): 30, "none": 0} {
		ids := []dispatcherd.SlotID{0}
		for _, slot := range ListSlots(typ, s.core) {
			ids = append(ids, slot.Slot)
		}
		require.Len(t, ids, 1+want, "type %q", typ)
		require.IsIncreasing(t, ids)
	}
}

func TestWaitingRequestsAreListedInPortions(t *testing.T) {
	s := newStepper(t, 100)
	require.Empty(t, ListRequests(s.core))
	s.register(1, 1, 1, none)
	s.request(1, 0) // runs
	var want []contract.WaitingRequest
	for id := dispatcherd.JobID(2); id <= 61; id++ {
		typ, priority := int(id%3), dispatcherd.Priority(id%2*10)
		s.step(Requested{Job: -id, Type: typeName(typ), Priority: priority, Wait: true})
		want = append(want, contract.WaitingRequest{ID: -id, Type: typeName(typ), Priority: priority})
	}
	asked := &counter{core: s.core}
	list := ListRequests(asked)
	require.Equal(t, 60*10/100, asked.asks, "10 requests at a time")
	for i := range list {
		require.Equal(t, 60-i, int(math.Round(list[i].Age*1000))+1, "one request a millisecond")
		list[i].Age = 0
	}
	require.Equal(t, want, list)
}

// The last request of a portion leaves its queue before the next portion, which begins at its place.
func TestRequestThatEndsWhileTheListIsReadHidesNoOther(t *testing.T) {
	s := newStepper(t, 100)
	for id := dispatcherd.JobID(1); id <= 15; id++ {
		s.request(id, int(id)/14)
	}
	asked := &counter{core: s.core, between: func(int) { s.step(Abandoned{Job: -10}) }}
	var ids []dispatcherd.JobID
	for _, r := range ListRequests(asked) {
		ids = append(ids, r.ID)
	}
	require.Equal(t, []dispatcherd.JobID{-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12, -13, -14, -15}, ids)
	require.Empty(t, ListRequests(&ended{s.core, 1}))
}

// The slots of a portion are listed as they were then. Slots of the other ones that are removed meanwhile are missing, and a new
// slot that uses the Ref of one of them is listed.
func TestSlotsThatAreRemovedMeanwhileAreMissing(t *testing.T) {
	s := newStepper(t, 100)
	s.register(1, 20, 1, none)
	asked := &counter{core: s.core, between: func(asks int) {
		if asks == 1 {
			s.step(Unregistered{Session: 1})
			s.finishWork()
			s.register(2, 3, 1, none)
		}
	}}
	list := ListSlots("", asked)
	require.Positive(t, asked.asks)
	ids := []dispatcherd.SlotID{0}
	for i := range list {
		ids = append(ids, list[i].Slot)
	}
	require.Less(t, len(ids), 20)
	require.IsIncreasing(t, ids)
}

func TestEndedLoopAnswersNothing(t *testing.T) {
	s := newStepper(t, 100)
	s.register(1, 200, 3, none)
	for asks := range 2 {
		require.Empty(t, ListSlots("", &ended{s.core, asks}))
		require.Zero(t, Explain(Inquiry{Type: typeName(0)}, &ended{s.core, 0}))
	}
	require.Empty(t, ListTypes(&ended{s.core, 0}))
}

// Each type has several classes, so the free slots of one type are counted in several
// portions.
func TestFreeSlotsOfATypeAreCountedInPortions(t *testing.T) {
	s := newStepper(t, 10)
	var slots []dispatcherd.Slot
	for i := range 40 {
		slots = append(slots, dispatcherd.Slot{ID: dispatcherd.SlotID(i + 1), Number: int32(i), Types: []string{"a", "b" + typeName(i)}})
	}
	s.step(Registered{Session: 1, Worker: "w", Slots: slots})
	asked := &counter{core: s.core}
	list := ListTypes(asked)
	require.Equal(t, contract.Type{Type: "a", Capacity: 40, Free: 40}, list[0])
	require.Equal(t, 5+40, asked.asks, "the classes of a, 10 at a time, then the other types")
	x := Explain(Inquiry{ID: 1, Type: "a"}, s.core)
	require.Equal(t, 40, x.Free)
	require.Len(t, x.Slots, explainedSlots)
}

// 300 requests wait in one queue, and 40 types wait besides.
func TestExplanationIsMadeInPortions(t *testing.T) {
	s := newStepper(t, 100)
	for i := range 300 {
		s.request(dispatcherd.JobID(i+1), 0)
	}
	for i := range 40 {
		s.request(dispatcherd.JobID(i+301), i+1)
	}
	asked := &counter{core: s.core}
	rank, waits, ok := RankOfRequest(-300, asked)
	require.True(t, ok)
	require.Equal(t, []int{300, 300}, []int{rank, waits})
	require.Equal(t, 6, asked.asks, "100 / 2 requests at a time")
	asked.asks = 0
	x := Explain(Inquiry{ID: -300}, asked)
	require.Equal(t, []int{300, 300, 300, 340}, []int{x.Rank, x.Waiting, x.RankAll, x.WaitingAll})
	require.Len(t, x.Ahead, explainedRivals)
	require.EqualValues(t, -1, x.Ahead[0].Job)
	require.EqualValues(t, -explainedRivals, x.Ahead[explainedRivals-1].Job)
	require.Greater(t, asked.asks, 6)
}

// The request with which the next portion was to continue is answered meanwhile.
func TestRankIsCountedAlthoughARequestEnds(t *testing.T) {
	s := newStepper(t, 100)
	for i := range 300 {
		s.request(dispatcherd.JobID(i+1), 0)
	}
	asked := &counter{core: s.core, between: func(asks int) {
		if asks == 2 {
			s.step(Abandoned{Job: -102})
		}
	}}
	x := Explain(Inquiry{ID: -300}, asked)
	require.Equal(t, []int{299, 299}, []int{x.Rank, x.Waiting})
}

// The explained job is assigned to a slot while the jobs before it are counted.
func TestJobThatStartsMeanwhileHasNoRank(t *testing.T) {
	s := newStepper(t, 100)
	for i := range 300 {
		s.request(dispatcherd.JobID(i+1), 0)
	}
	asked := &counter{core: s.core, between: func(asks int) {
		if asks == 2 {
			s.register(1, 300, 1, none)
			s.finishWork()
		}
	}}
	x := Explain(Inquiry{ID: -300}, asked)
	require.Equal(t, []Reason{ReasonRunning}, x.Reasons)
	require.Zero(t, x.Rank+x.Waiting+x.RankAll+x.WaitingAll+x.Competing+len(x.Ahead))
	require.NotZero(t, x.Slot)
}

// The free slot is after the slots that an explanation lists, and is listed nevertheless.
func TestFreeSlotIsListed(t *testing.T) {
	s := newStepper(t, 10_000)
	s.register(1, explainedSlots+8, 1, none)
	for i := range explainedSlots + 7 {
		s.request(dispatcherd.JobID(i+1), 0)
	}
	x := Explain(Inquiry{ID: 1, Type: typeName(0)}, s.core)
	require.Len(t, x.Slots, explainedSlots)
	require.EqualValues(t, explainedSlots+8, x.Slots[explainedSlots-1].Slot)
	require.Equal(t, 1, x.Free)
}
