package slotindex

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// take takes a slot for a type and returns its id, or 0 if none is free.
func take(t *testing.T, x *Index, name string) dispatcherd.SlotID {
	t.Helper()
	typ, known := x.Lookup(name)
	if !known {
		return 0
	}
	r, ok := x.takeBest(typ)
	require.NoError(t, x.Check())
	if !ok {
		return 0
	}
	return x.SlotID(r)
}

// The example of article 1: slots A, B and C, and a pdf job.
func TestPDFJobTakesSlotASoThatBAndCRemainForExcelAndIndex(t *testing.T) {
	const a, b, c = 3, 2, 1 // the ids are in the opposite order, so that they cannot explain the result
	x := New()
	x.Add(c, []string{"excel", "index", "pdf"})
	x.Add(b, []string{"excel", "pdf"})
	x.Add(a, []string{"pdf"})
	require.EqualValues(t, a, take(t, x, "pdf"))
	require.EqualValues(t, b, take(t, x, "excel"))
	require.EqualValues(t, c, take(t, x, "index"))
	require.Zero(t, take(t, x, "pdf"))
}

// The wrong choice in article 1: the versatile slot must be left for type C.
func TestTheVersatileSlotIsLeftForTheTypeOnlyItCanRun(t *testing.T) {
	x := New()
	x.Add(1, []string{"a", "b", "c"})
	x.Add(2, []string{"a"})
	require.EqualValues(t, 2, take(t, x, "a"))
	require.EqualValues(t, 1, take(t, x, "c"))
}

func TestAmongEquallySpecialisedSlotsTheSmallestIDIsTakenAcrossClasses(t *testing.T) {
	x := New()
	x.Add(40, []string{"a", "b"})
	x.Add(10, []string{"a", "c"})
	x.Add(30, []string{"a", "b"})
	x.Add(20, []string{"a", "d"})
	x.Add(1, []string{"a", "b", "c"})
	for _, want := range []dispatcherd.SlotID{10, 20, 30, 40, 1, 0} {
		require.Equal(t, want, take(t, x, "a"))
	}
}

func TestCapacityCountsFreeAndTakenSlotsButNoDrainingOnes(t *testing.T) {
	x := New()
	r := x.Add(1, []string{"a", "b"})
	q := x.Add(2, []string{"a"})
	a, _ := x.Lookup("a")
	b, _ := x.Lookup("b")
	require.Equal(t, []int{2, 1}, []int{x.Capacity(a), x.Capacity(b)})
	x.takeBest(a)
	x.takeBest(a)
	require.Equal(t, []int{2, 1}, []int{x.Capacity(a), x.Capacity(b)})
	x.Drain(r)
	require.Equal(t, []int{1, 0}, []int{x.Capacity(a), x.Capacity(b)})
	x.Remove(q)
	require.Equal(t, []int{0, 0}, []int{x.Capacity(a), x.Capacity(b)})
	require.Equal(t, 1, x.Len(), "a draining slot stays registered")
	require.NoError(t, x.Check())
}

func TestADrainingSlotNeverBecomesFreeAgain(t *testing.T) {
	x := New()
	r := x.Add(1, []string{"a"})
	a, _ := x.Lookup("a")
	x.takeBest(a)
	x.Drain(r)
	x.Release(r)
	require.False(t, x.HasFree(a))
	x.Drain(r)
	require.Zero(t, take(t, x, "a"))
	require.Zero(t, x.Free())
}

func TestATypeIsForgottenWithItsLastSlotAndHolder(t *testing.T) {
	x := New()
	a := x.Hold("a")
	r := x.Add(1, []string{"a", "b"})
	b, _ := x.Lookup("b")
	require.NotEqual(t, a, b)
	x.Remove(r)
	_, known := x.Lookup("b")
	require.False(t, known)
	got, known := x.Lookup("a")
	require.True(t, known, "held")
	require.Equal(t, a, got)
	require.Equal(t, b, x.Hold("c"), "the number is reused")
	x.Drop(a)
	_, known = x.Lookup("a")
	require.False(t, known)
	require.Len(t, x.types, 2)
}

func TestARefIsReusedAfterRemove(t *testing.T) {
	x := New()
	r := x.Add(1, []string{"a"})
	x.Remove(r)
	require.Equal(t, r, x.Add(2, []string{"b"}))
	require.EqualValues(t, 2, x.SlotID(r))
	require.Equal(t, 1, x.Len())
}

func TestTheCallersSliceOfTypesIsNotKept(t *testing.T) {
	x := New()
	types := []string{"a", "b"}
	x.Add(1, types)
	types[0] = "z"
	require.EqualValues(t, 1, take(t, x, "a"))
	require.Zero(t, take(t, x, "z"))
}

func TestIDsInDescendingOrderAreTakenInAscendingOrder(t *testing.T) {
	const n = 5000
	x := New()
	for id := dispatcherd.SlotID(n); id > 0; id-- {
		x.Add(id, []string{"a"})
	}
	require.NoError(t, x.Check())
	a, _ := x.Lookup("a")
	for id := dispatcherd.SlotID(1); id <= n; id++ {
		r, ok := x.takeBest(a)
		require.True(t, ok)
		require.Equal(t, id, x.SlotID(r))
	}
}

func TestAFreeSlotBelowAllOthersIsFoundAgain(t *testing.T) {
	const n, some = 3000, 2000
	x := New()
	for id := range dispatcherd.SlotID(n) {
		x.Add(id, []string{"a"})
	}
	a, _ := x.Lookup("a")
	for range some {
		x.takeBest(a)
	}
	x.Release(7)
	require.NoError(t, x.Check())
	for _, want := range []Ref{7, some} {
		r, ok := x.takeBest(a)
		require.True(t, ok)
		require.Equal(t, want, r)
	}
	for r := range Ref(29) {
		x.Remove(r)
	}
	require.NoError(t, x.Check())
	require.EqualValues(t, some+1, take(t, x, "a"))
}

// These are the limits of the product.
func TestAHundredThousandSlotsTenThousandTypesAndOneSlotOfAThousand(t *testing.T) {
	x := New()
	const types = 10_000
	name := func(i int) string { return fmt.Sprintf("type-%05d", i) }
	var thousand []string
	for i := range 1000 {
		thousand = append(thousand, name(i*10))
	}
	versatile := x.Add(0, thousand)
	for i := 1; i < 100_000; i++ {
		set := []string{name(i % types), name(i * 7 % types)}
		slices.Sort(set)
		x.Add(dispatcherd.SlotID(i), slices.Compact(set))
	}
	require.NoError(t, x.Check())
	require.Len(t, x.types, types)
	for i := range types {
		typ, known := x.Lookup(name(i))
		require.True(t, known)
		r, ok := x.takeBest(typ)
		require.True(t, ok && x.Supports(r, typ))
	}
	require.True(t, x.IsFree(versatile), "specialised slots were free for every type")
	for _, r := range x.Slots() {
		x.Remove(r)
	}
	require.NoError(t, x.Check())
	require.Zero(t, x.Len())
	require.Zero(t, len(x.byName)+len(x.byTypes))
}

func TestBrokenPreconditionsPanicAndSayWhat(t *testing.T) {
	for _, c := range []struct {
		why, message string
		call         func(x *Index, r Ref)
	}{
		{"no types", "at least one type", func(x *Index, r Ref) { x.Add(2, nil) }},
		{"unsorted types", `"b" comes before "a"`, func(x *Index, r Ref) { x.Add(2, []string{"b", "a"}) }},
		{"a type twice", `"a" comes before "a"`, func(x *Index, r Ref) { x.Add(2, []string{"a", "a"}) }},
		{"a type without name", "needs a name", func(x *Index, r Ref) { x.Hold("") }},
		{"release of a free slot", "slot 1 (ref 0), which is free", func(x *Index, r Ref) { x.Release(r) }},
		{"release of a removed slot", "which is gone", func(x *Index, r Ref) { x.Remove(r); x.Release(r) }},
		{"drain of a removed slot", "no registered slot", func(x *Index, r Ref) { x.Remove(r); x.Drain(r) }},
		{"remove twice", "no registered slot", func(x *Index, r Ref) { x.Remove(r); x.Remove(r) }},
		{"id of a removed slot", "no registered slot", func(x *Index, r Ref) { x.Remove(r); x.SlotID(r) }},
		{"take of a taken slot", "which is taken", func(x *Index, r Ref) { x.Take(r); x.Take(r) }},
	} {
		t.Run(c.why, func(t *testing.T) {
			x := New()
			r := x.Add(1, []string{"a"})
			defer func() { require.Contains(t, fmt.Sprint(recover()), c.message) }()
			c.call(x, r)
		})
	}
}
