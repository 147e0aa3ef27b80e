package permits

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// history drives a Book and the reference with the same random input.
type history struct {
	t     *testing.T
	rng   *rand.Rand
	book  *Book
	ref   *refBook
	now   int64
	next  int64
	table map[Class][]Job // waiting rows, in order
	few   []Class         // half of the histories have few classes, with many jobs each
}

var testTypes = []string{"a", "b", "c"}

func (h *history) keys() string {
	name := func() string { return []string{"x", "y", "z", "p:1", "p:2", "p:q:1"}[h.rng.IntN(6)] }
	words := []string{name()}
	for range h.rng.IntN(3) {
		words = append(words, name())
	}
	return strings.Join(words, " ") + []string{"*all", "*2", "", "", "", ""}[h.rng.IntN(6)]
}

func (h *history) limits() []Limit {
	var list []Limit
	for _, key := range []string{"x", "y", "p:*", "p:q:*", "p:2"} {
		if h.rng.IntN(3) == 0 {
			continue
		}
		l := Limit{Key: key, Capacity: int64(h.rng.IntN(5)) - 1}
		if h.rng.IntN(3) == 0 {
			l.Rate, l.Per = 1+h.rng.Int64N(4), 1_000_000
		}
		list = append(list, l)
	}
	return list
}

// refill answers reads of further jobs from the table. Jobs of the same class may arrive before an answer.
func (h *history) refill(arrivals bool) {
	for reads := h.book.Refills(2); len(reads) > 0; reads = h.book.Refills(2) {
		for _, r := range reads {
			jobs := slices.DeleteFunc(slices.Clone(h.table[r.Class]), func(j Job) bool { return j.compare(r.After) <= 0 })
			if arrivals {
				for range max(0, h.rng.IntN(24)-12) {
					h.add(r.Class)
				}
			}
			n := min(len(jobs), h.book.kept)
			h.book.Filled(r, jobs[:n], len(jobs) > n)
		}
	}
}

// wait adds a row to the table.
func (h *history) wait(name Class, j Job) {
	i, _ := slices.BinarySearchFunc(h.table[name], j, Job.compare)
	h.table[name] = slices.Insert(h.table[name], i, j)
}

func (h *history) class() Class {
	return Class{Keys: h.keys(), Type: testTypes[h.rng.IntN(3)], Priority: int16(h.rng.IntN(3))}
}

// add adds a job of a class. A book may learn of a job twice.
func (h *history) add(name Class) {
	h.next++
	j := Job{h.now - h.rng.Int64N(3_000_000), h.next}
	h.wait(name, j)
	h.ref.add(name, j)
	h.book.Add(name, j)
	h.book.Add(name, j)
}

func (h *history) permit() *refPermit {
	ids := make([]int64, 0, len(h.ref.permits))
	for id := range h.ref.permits {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	return h.ref.permits[ids[h.rng.IntN(len(ids))]]
}

func (h *history) step() {
	switch h.rng.IntN(14) {
	case 0, 1, 2, 3:
		if len(h.few) == 0 {
			h.add(h.class())
			return
		}
		for range 3 {
			h.add(h.few[h.rng.IntN(len(h.few))])
		}
	case 4, 5:
		if p := h.permit(); p != nil {
			h.ref.start(p.ID, h.now)
			h.book.Started(p.ID, p.fence, h.now)
		}
	case 6, 7, 8:
		if p := h.permit(); p != nil {
			h.book.Ended(p.ID, p.fence+1)
			h.ref.start(p.ID, h.now)
			delete(h.ref.permits, p.ID)
			h.book.Ended(p.ID, p.fence)
		}
	case 9:
		if p := h.permit(); p != nil && !p.started {
			delete(h.ref.permits, p.ID)
			h.book.Unused(p.ID, p.fence)
		}
	case 10:
		if h.rng.IntN(4) == 0 {
			list := h.limits()
			h.ref.limits = list
			h.book.SetLimits(list)
			h.ref.again()
		}
	case 11:
		if h.rng.IntN(4) == 0 {
			types := map[string]Type{}
			for _, typ := range testTypes {
				types[typ] = Type{Most: 1000 * h.rng.IntN(5)}
			}
			h.ref.types = types
			h.book.SetTypes(types)
			h.ref.again()
		}
	default:
		h.now += h.rng.Int64N(600_000)
		h.ref.advance(h.now)
		h.book.Advance(h.now)
		h.withdraw()
	}
}

func (h *history) withdraw() {
	want := h.ref.withdrawals()
	var got []int64
	for _, p := range h.book.Withdrawals() {
		got = append(got, p.ID)
	}
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(h.t, want, got)
	for _, id := range want {
		p := h.ref.permits[id]
		fence := p.fence
		h.wait(p.Class, p.Job)
		h.ref.withdrawn(id)
		h.book.Withdrawn(id, fence)
	}
}

// dry reports whether a class waits for the answer to a refill. Classes with other keys may pass it.
func (h *history) dry() bool {
	for _, c := range h.book.classes { // order-free: existence only
		if len(c.jobs) == 0 {
			return true
		}
	}
	return false
}

// check compares the decisions, and tests that no key admits more than its limit.
func (h *history) check() {
	h.refill(true)
	want := h.ref.admit()
	var got []Admission
	for {
		some := h.book.Admit(1)
		if len(some) == 0 && !h.dry() {
			break // further refills are answered after the next events
		}
		for _, a := range some {
			got = append(got, a)
			h.table[a.Class] = slices.DeleteFunc(h.table[a.Class], func(j Job) bool { return j == a.Job })
		}
		if h.dry() {
			h.refill(false)
		}
	}
	require.Equal(h.t, fmt.Sprint(want), fmt.Sprint(got), "%s", h)
	for _, a := range got {
		for _, n := range must(Parse(a.Keys)) {
			k, l := h.book.keys[n.Key], h.ref.limit(n.Key)
			if n.Cost == All {
				require.Equal(h.t, 1, k.holders, "%q runs alone", n.Key)
			} else if l.Capacity != Unlimited {
				require.LessOrEqual(h.t, k.held, l.Capacity)
				require.Zero(h.t, k.alone)
			}
		}
	}
}

// String describes the state after decisions that differ.
func (h *history) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "now %d, limits %v\n", h.now, h.ref.limits)
	for _, c := range h.ref.ordered() {
		fmt.Fprintf(&text, "waits: %v at %q old %v passed %d", c.Class, c.at, c.old, c.passed)
		if b := h.book.classes[c.Class]; b != nil && b.at != nil {
			fmt.Fprintf(&text, "; book: at %q old %v", b.at.name, b.old)
		}
		for _, n := range c.needs {
			fmt.Fprintf(&text, "; %q: %v", n.Key, h.ref.admits(c, n))
		}
		text.WriteString("\n")
	}
	for _, p := range h.ref.permits {
		fmt.Fprintf(&text, "permit: %v started %v\n", p.Class, p.started)
	}
	return text.String()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestDecisionsEqualTheReference compares a Book with loops over all jobs.
func TestDecisionsEqualTheReference(t *testing.T) {
	seeds := uint64(2_000)
	if testing.Short() {
		seeds = 200
	}
	for seed := range seeds {
		h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: 10_000_000, table: map[Class][]Job{}}
		config := Config{Patience: 2_000_000, PerPriority: 500_000, FirstFence: 7}
		list := h.limits()
		h.book, h.ref = New(config, list), newRefBook(config, list)
		h.book.kept = 4
		if seed%2 == 0 {
			h.few = []Class{h.class(), h.class()}
		}
		h.ref.advance(h.now)
		h.book.Advance(h.now)
		for range 120 {
			h.step()
			h.check()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// Several arrivals and a cancelled job.
func TestArrivalsAreReadAndGoneJobsForgotten(t *testing.T) {
	w := newWorld(t)
	class := Class{Keys: "k", Type: "a"}
	require.True(t, w.Arrived(class, Job{1, 1}, 3))
	w.admits(1)
	r := w.Refills(1)
	require.Equal(t, []Refill{{class, Job{1, 1}}}, r)
	w.Filled(r[0], []Job{{1, 2}, {1, 3}}, false)
	w.Gone(class, 2)
	w.end(1)
	w.admits(3)
}
