package slotindex

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// naiveIndex is a naive index: a slice of slots. Each operation scans all of them.
type naiveIndex struct {
	slots []naiveSlot
	holds map[string]bool
}

type naiveSlot struct {
	id    dispatcherd.SlotID
	types []string
	state state
	ref   Ref
}

func (w *naiveIndex) best(typ string) int {
	best := -1
	for i, s := range w.slots {
		if s.state != free || !slices.Contains(s.types, typ) {
			continue
		}
		if best < 0 || len(s.types) < len(w.slots[best].types) ||
			len(s.types) == len(w.slots[best].types) && s.id < w.slots[best].id {
			best = i
		}
	}
	return best
}

func (w *naiveIndex) count(typ string, want func(state) bool) int {
	n := 0
	for _, s := range w.slots {
		if want(s.state) && slices.Contains(s.types, typ) {
			n++
		}
	}
	return n
}

func inService(s state) bool { return s == free || s == taken || s == retired }
func isFree(s state) bool    { return s == free }

// history drives an index and a naive index by the same random operations.
type history struct {
	t      *testing.T
	rng    *rand.Rand
	names  []string
	limit  int // slots
	nextID dispatcherd.SlotID
	x      *Index
	naive  naiveIndex
	log    []string // what the index answered, to compare two runs
}

func newHistory(t *testing.T, seed uint64, types, limit int) *history {
	h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 1)), limit: limit, x: New(), nextID: 1 << 40}
	h.naive.holds = map[string]bool{}
	for i := range types {
		h.names = append(h.names, fmt.Sprintf("t%02d", i))
	}
	return h
}

func (h *history) typ() string { return h.names[h.rng.IntN(len(h.names))] }

func (h *history) step() {
	switch op := h.rng.IntN(100); {
	case op < 15:
		h.add()
	case op < 45:
		h.take()
	case op < 50:
		h.withSlot(free, func(s *naiveSlot) { h.x.Take(s.ref); s.state = taken })
	case op < 80:
		h.withSlot(taken, func(s *naiveSlot) { h.x.Release(s.ref); s.state = free })
	case op < 83:
		h.withSlot(draining, func(s *naiveSlot) { h.x.Release(s.ref) })
		h.withSlot(retired, func(s *naiveSlot) { h.x.Release(s.ref) })
	case op < 84:
		h.withSlot(gone, func(s *naiveSlot) {
			h.x.Retire(s.ref)
			if s.state != draining {
				s.state = retired
			}
		})
	case op < 86:
		h.withSlot(gone, func(s *naiveSlot) { h.x.Drain(s.ref); s.state = draining })
	case op < 94:
		h.remove()
	default:
		h.holdOrDrop()
	}
}

// add registers a slot; most ids ascend, some come out of order.
func (h *history) add() {
	if len(h.naive.slots) >= h.limit {
		return
	}
	id := h.nextID
	h.nextID += dispatcherd.SlotID(1 + h.rng.IntN(1000))
	if h.rng.IntN(3) == 0 {
		id = dispatcherd.SlotID(h.rng.Int64N(int64(h.nextID)))
	}
	if slices.ContainsFunc(h.naive.slots, func(s naiveSlot) bool { return s.id == id }) {
		return
	}
	var types []string
	for range 1 + h.rng.IntN(3) {
		types = append(types, h.typ())
	}
	slices.Sort(types)
	types = slices.Compact(types)
	ref := h.x.Add(id, types)
	h.naive.slots = append(h.naive.slots, naiveSlot{id: id, types: types, state: free, ref: ref})
	h.log = append(h.log, fmt.Sprint("add ", id, ref))
}

func (h *history) take() {
	name := h.typ()
	want := h.naive.best(name)
	t, known := h.x.Lookup(name)
	if !known {
		require.Negative(h.t, want)
		return
	}
	peeked, ok := h.x.Peek(t)
	require.Equal(h.t, want >= 0, ok)
	require.Equal(h.t, want >= 0, h.x.HasFree(t))
	got, ok := h.x.takeBest(t)
	require.Equal(h.t, want >= 0, ok)
	if ok {
		require.Equal(h.t, h.naive.slots[want].id, h.x.SlotID(got))
		require.Equal(h.t, got, peeked)
		require.True(h.t, h.x.Supports(got, t))
		h.naive.slots[want].state = taken
	}
	h.log = append(h.log, fmt.Sprint("take ", name, got, ok))
}

// withSlot applies f to a random slot in a state. The state gone means any state.
func (h *history) withSlot(in state, f func(*naiveSlot)) {
	var found []int
	for i, s := range h.naive.slots {
		if in == gone || s.state == in {
			found = append(found, i)
		}
	}
	if len(found) > 0 {
		f(&h.naive.slots[found[h.rng.IntN(len(found))]])
	}
}

func (h *history) remove() {
	if len(h.naive.slots) == 0 {
		return
	}
	i := h.rng.IntN(len(h.naive.slots))
	h.x.Remove(h.naive.slots[i].ref)
	h.naive.slots = slices.Delete(h.naive.slots, i, i+1)
}

func (h *history) holdOrDrop() {
	name := h.typ()
	if h.naive.holds[name] && h.rng.IntN(2) == 0 {
		t, known := h.x.Lookup(name)
		require.True(h.t, known, "a held type is never forgotten")
		h.x.Drop(t)
		h.naive.holds[name] = false
		return
	}
	t := h.x.Hold(name)
	h.naive.holds[name] = true
	h.log = append(h.log, fmt.Sprint("hold ", name, t))
}

// compare checks the index with the naive index: all methods must return the same.
func (h *history) compare() {
	require.NoError(h.t, h.x.Check())
	require.Equal(h.t, len(h.naive.slots), h.x.Len())
	var ids, want []dispatcherd.SlotID
	frees := 0
	for _, s := range h.naive.slots {
		want = append(want, s.id)
		require.Equal(h.t, s.id, h.x.SlotID(s.ref))
		require.Equal(h.t, s.state == free, h.x.IsFree(s.ref))
		require.Equal(h.t, s.state == draining || s.state == retired, h.x.IsDraining(s.ref))
		if s.state == free {
			frees++
		}
		var names []string
		for _, t := range h.x.TypesOf(s.ref) {
			names = append(names, h.x.Name(t))
		}
		require.Equal(h.t, s.types, names)
	}
	slices.Sort(want)
	for _, r := range h.x.Slots() {
		ids = append(ids, h.x.SlotID(r))
	}
	require.Equal(h.t, want, ids)
	require.Equal(h.t, frees, h.x.Free())
	for _, name := range h.names {
		h.compareType(name)
	}
}

// compareClasses compares what the classes of a type say about its slots.
func (h *history) compareClasses(t TypeID, name string) {
	competitors, members := map[string]bool{}, []Ref{}
	for _, s := range h.naive.slots {
		if s.state == gone || !slices.Contains(s.types, name) {
			continue
		}
		for _, other := range s.types {
			competitors[other] = true
		}
		if s.state != draining {
			members = append(members, s.ref)
		}
	}
	var set TypeMap
	var refs []Ref
	for i := range h.x.Classes(t) {
		set.Add(h.x.TypesAt(t, i))
		refs = append(refs, h.x.SlotsAt(t, i)...)
	}
	for _, other := range h.names {
		u, known := h.x.Lookup(other)
		require.Equal(h.t, competitors[other], known && set.Has(u))
	}
	slices.Sort(members)
	slices.Sort(refs)
	require.True(h.t, slices.Equal(members, refs))
}

func (h *history) compareType(name string) {
	all := func(state) bool { return true }
	t, known := h.x.Lookup(name)
	require.Equal(h.t, h.naive.holds[name] || h.naive.count(name, all) > 0, known, name)
	if !known {
		return
	}
	require.Less(h.t, int(t), len(h.x.types))
	require.Equal(h.t, name, h.x.Name(t))
	require.Equal(h.t, h.naive.count(name, inService), h.x.Capacity(t))
	free := h.naive.count(name, isFree)
	require.Equal(h.t, free, h.x.FreeFor(t, math.MaxInt))
	require.LessOrEqual(h.t, h.x.FreeFor(t, 2), free)
	supporting, except := TypeMap{}, TypeMap{}
	for _, other := range h.names {
		if u, known := h.x.Lookup(other); known {
			supporting.Set(u, h.rng.IntN(2) == 0)
			except.Set(u, h.rng.IntN(4) == 0)
		}
	}
	h.compareClasses(t, name)
	fewest := 0
	for _, s := range h.naive.slots {
		if s.state != gone && slices.Contains(s.types, name) && (fewest == 0 || len(s.types) < fewest) {
			fewest = len(s.types)
		}
	}
	require.Equal(h.t, fewest, h.x.Fewest(t))
	for _, s := range h.naive.slots {
		require.Equal(h.t, slices.Contains(s.types, name), h.x.Supports(s.ref, t))
		found := false
		h.x.EachSupported(s.ref, supporting, except, func(u TypeID) {
			require.True(h.t, supporting.Has(u) && !except.Has(u) && h.x.Supports(s.ref, u))
			found = found || u == t
		})
		require.Equal(h.t, slices.Contains(s.types, name) && supporting.Has(t) && !except.Has(t), found)
	}
}

func TestTheIndexEqualsANaiveScan(t *testing.T) {
	for _, shape := range []struct{ types, limit, steps, every int }{
		{3, 12, 40_000, 7},      // everything comes and goes, types included
		{12, 60, 40_000, 41},    // many classes of few slots
		{2, 400, 40_000, 101},   // classes of many slots
		{40, 200, 30_000, 101},  // more than a word of classes per type
		{1, 3000, 12_000, 1001}, // one class
	} {
		t.Run(fmt.Sprintf("%d types %d slots", shape.types, shape.limit), func(t *testing.T) {
			h := newHistory(t, 20_25, shape.types, shape.limit)
			for h.limit > 1000 && len(h.naive.slots) < h.limit {
				h.add()
			}
			steps := shape.steps
			if testing.Short() {
				steps /= 4
			}
			for i := range steps {
				h.step()
				if i%shape.every == 0 {
					h.compare()
				}
			}
			h.compare()
		})
	}
}

func TestTheSameCallsGiveTheSameAnswers(t *testing.T) {
	run := func() []string {
		h := newHistory(t, 7, 10, 80)
		for range 20_000 {
			h.step()
		}
		return h.log
	}
	first := run()
	require.Greater(t, len(first), 5_000)
	require.Equal(t, first, run())
}
