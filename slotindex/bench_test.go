package slotindex

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dispatcherd/dispatcherd"
)

// fleet registers slots. Their type sets are drawn from a fixed number of random
// sets of 1 to 5 types. Every type occurs at least once.
func fleet(slots, types, sets int) *Index {
	rng := rand.New(rand.NewPCG(1, 2))
	name := func(i int) string { return fmt.Sprintf("t%04d", i) }
	var all [][]string
	for i := range sets {
		set := []string{name(i % types)}
		for range rng.IntN(5) {
			set = append(set, name(rng.IntN(types)))
		}
		slices.Sort(set)
		all = append(all, slices.Compact(set))
	}
	x := New()
	for i := range slots {
		set := all[i%sets]
		if i >= sets {
			set = all[rng.IntN(sets)]
		}
		x.Add(dispatcherd.SlotID(i+1), set)
	}
	return x
}

var fleets = []struct{ slots, types, sets int }{
	{10, 10, 10},
	{1_000, 100, 300},
	{100_000, 1_000, 2_000},
	{100_000, 20, 2_000},       // many classes of equal size per type
	{100_000, 1, 1},            // one class
	{100_000, 1_000, 100_000},  // nearly every slot has its own class
	{100_000, 10_000, 100_000}, // nearly every slot has its own class; the largest number of types
}

// order returns types in a random order. Iterating over it costs little.
func order(x *Index) []TypeID {
	rng := rand.New(rand.NewPCG(3, 4))
	list := make([]TypeID, 1<<16)
	for i := range list {
		list[i] = TypeID(rng.IntN(len(x.types)))
	}
	return list
}

// One iteration places a job of a random type and frees the slot at once.
func BenchmarkTakeRelease(b *testing.B) {
	for _, f := range fleets {
		b.Run(fmt.Sprintf("slots=%d/types=%d/sets=%d", f.slots, f.types, f.sets), func(b *testing.B) {
			x := fleet(f.slots, f.types, f.sets)
			types := order(x)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if r, ok := x.takeBest(types[i&(1<<16-1)]); ok {
					x.Release(r)
				}
				i++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
	}
}

// One iteration on a busy machine: 9 of 10 slots are taken. The slot that has run
// longest becomes free, and the next job is placed.
func BenchmarkTakeReleaseBusy(b *testing.B) {
	for _, f := range fleets {
		b.Run(fmt.Sprintf("slots=%d/types=%d/sets=%d", f.slots, f.types, f.sets), func(b *testing.B) {
			x := fleet(f.slots, f.types, f.sets)
			types := order(x)
			running := make([]Ref, 0, f.slots)
			for i := 0; len(running) < f.slots*9/10; i++ {
				if r, ok := x.takeBest(types[i%len(types)]); ok {
					running = append(running, r)
				}
			}
			b.ReportAllocs()
			i, oldest := 0, 0
			for b.Loop() {
				x.Release(running[oldest])
				r, ok := x.takeBest(types[i&(1<<16-1)])
				for !ok {
					i++
					r, ok = x.takeBest(types[i&(1<<16-1)])
				}
				running[oldest] = r
				i++
				if oldest++; oldest == len(running) {
					oldest = 0
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
	}
}

// A slot with 1,000 types that is alone in its class is the slowest case.
func BenchmarkTakeReleaseOfAThousandTypes(b *testing.B) {
	x := New()
	var types []string
	for i := range 1000 {
		types = append(types, fmt.Sprintf("t%04d", i))
	}
	x.Add(1, types)
	b.ReportAllocs()
	for b.Loop() {
		r, _ := x.takeBest(500)
		x.Release(r)
	}
}

func BenchmarkAddRemove(b *testing.B) {
	x := fleet(100_000, 1_000, 2_000)
	types := []string{"t0001", "t0002", "t0003"} // the class is created and removed each time
	b.ReportAllocs()
	for b.Loop() {
		x.Remove(x.Add(1_000_000, types))
	}
}

func TestTakePeekAndReleaseAllocateNothing(t *testing.T) {
	x := fleet(1_000, 100, 300)
	types := order(x)
	i := 0
	if n := testing.AllocsPerRun(10_000, func() {
		typ := types[i]
		i++
		x.Peek(typ)
		if r, ok := x.takeBest(typ); ok {
			x.Release(r)
		}
	}); n != 0 {
		t.Fatalf("%v allocations per placement, want 0", n)
	}
}

// 2,000 classes of equal size share one type, so Take compares 2,000 heads.
func BenchmarkTakeReleaseAcrossEqualClasses(b *testing.B) {
	x := New()
	for i := range 2000 {
		x.Add(dispatcherd.SlotID(i), []string{"hot", fmt.Sprintf("t%04d", i)})
	}
	hot, _ := x.Lookup("hot")
	b.ReportAllocs()
	for b.Loop() {
		r, _ := x.takeBest(hot)
		x.Release(r)
	}
}
