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
	t    *testing.T
	rng  *rand.Rand
	book *Book
	ref  *refBook
	now  int64
	next int64
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

// table answers reads of further jobs from all waiting jobs.
func (h *history) refill() {
	for {
		reads := h.book.Refills(2)
		for _, r := range reads {
			var jobs []Job
			if c := h.ref.classes[r.Class]; c != nil {
				for _, j := range c.jobs {
					if j.compare(r.After) > 0 {
						jobs = append(jobs, j)
					}
				}
			}
			n := min(len(jobs), h.book.kept)
			h.book.Filled(r.Class, jobs[:n], len(jobs) > n)
		}
		if len(reads) == 0 {
			return
		}
	}
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
		h.next++
		name := Class{h.keys(), testTypes[h.rng.IntN(3)], int16(h.rng.IntN(3))}
		j := Job{h.now - h.rng.Int64N(3_000_000), h.next}
		h.ref.add(name, j)
		h.book.Add(name, j)
		h.book.Add(name, j)
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
			types := map[string]bool{}
			for _, typ := range testTypes {
				types[typ] = h.rng.IntN(5) > 0
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
		fence := h.ref.permits[id].fence
		h.ref.withdrawn(id)
		h.book.Withdrawn(id, fence)
	}
}

// check compares the decisions, and tests that no key admits more than its limit.
func (h *history) check(before map[string]int64) {
	h.refill()
	want := h.ref.admit()
	var got []Admission
	for {
		some := h.book.Admit(1 + h.rng.IntN(3))
		got = append(got, some...)
		h.refill()
		if len(some) == 0 {
			break
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
		h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: 10_000_000}
		config := Config{Patience: 2_000_000, PerPriority: 500_000, FirstFence: 7}
		list := h.limits()
		h.book, h.ref = New(config, list), newRefBook(config, list)
		h.book.kept = 4
		h.ref.advance(h.now)
		h.book.Advance(h.now)
		for range 120 {
			h.step()
			h.check(nil)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}
