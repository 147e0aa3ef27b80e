package permits

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
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
	full  bool            // the book has room for the classes that take part only
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
			l.Rate, l.Per = 1+h.rng.Int64N(4), []int64{200_000, 1_000_000, 5_000_000}[h.rng.IntN(3)]
		}
		if h.rng.IntN(4) == 0 {
			l.Scope = Dispatcher
		}
		if h.rng.IntN(4) == 0 {
			l.OnRetry = Wait
		}
		list = append(list, l)
	}
	return list
}

func (h *history) types() map[string]Type {
	types := map[string]Type{}
	for _, typ := range testTypes {
		t := Type{Most: h.rng.IntN(4)}
		for d := range int32(3) {
			if h.rng.IntN(3) > 0 {
				t.Dispatchers = append(t.Dispatchers, d+1)
			}
		}
		types[typ] = t
	}
	return types
}

// refill answers reads of further jobs from the table.
func (h *history) refill() {
	for reads := h.book.Refills(2); len(reads) > 0; reads = h.book.Refills(2) {
		for _, r := range reads {
			jobs := slices.DeleteFunc(slices.Clone(h.table[r.Class]), func(j Job) bool { return j.compare(r.After) <= 0 })
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

func (h *history) job() Job {
	h.next++
	return Job{h.now - 3_000_000 + h.rng.Int64N(3_500_000), h.next}
}

// add adds some jobs of a class. A book may learn of a job twice.
func (h *history) add(name Class) {
	h.bound(1)
	n := max(1, h.rng.IntN(6)-2)
	var jobs []Job
	for range n {
		jobs = append(jobs, h.job())
		h.wait(name, jobs[len(jobs)-1])
		h.ref.add(name, jobs[len(jobs)-1])
	}
	slices.SortFunc(jobs, Job.compare)
	if h.full {
		n = max(n, 2) // the book may have forgotten jobs of the class
	}
	h.book.Arrived(name, jobs[0], n > 1)
	h.book.Add(name, jobs[len(jobs)-1])
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
	switch h.rng.IntN(18) {
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
			at := h.now - h.rng.Int64N(1_500_000) + 10_000
			h.ref.start(p.ID, at)
			h.book.Started(p.ID, p.fence, at)
		}
	case 6, 7, 8:
		if p := h.permit(); p != nil {
			h.book.Ended(p.ID, p.fence+1)
			h.ref.end(p.ID)
			h.book.Ended(p.ID, p.fence)
		}
	case 9:
		if p := h.permit(); p != nil && !p.started {
			delete(h.ref.permits, p.ID)
			h.book.Unused(p.ID, p.fence)
		}
	case 10, 11:
		if h.rng.IntN(4) == 0 {
			list := h.limits()
			before := h.ref.limits
			h.ref.setLimits(list)
			if h.rng.IntN(2) == 0 {
				h.book.SetLimits(list)
				return
			}
			edited := map[string]*Limit{}
			for _, l := range before {
				edited[l.Key] = nil
			}
			for _, l := range list {
				if !slices.Contains(before, l) {
					edited[l.Key] = &l
				} else {
					delete(edited, l.Key)
				}
			}
			h.book.Edit(edited)
		}
	case 12:
		types := h.types()
		h.ref.setTypes(types)
		h.book.SetTypes(types)
	case 13:
		h.returns()
	case 14:
		h.gone()
	case 15:
		h.takeover()
	default:
		h.now += h.rng.Int64N(600_000)
		h.ref.advance(h.now)
		h.book.Advance(h.now)
		h.offer()
		h.withdraw()
	}
}

// returns makes a row wait again. Sometimes, its permit is not known.
func (h *history) returns() {
	name, j, fence := h.class(), Job{h.now - 500_000 + h.rng.Int64N(2_000_000), h.next + 1}, int64(3)
	if p := h.permit(); p != nil {
		name, j.ID, fence = p.Class, p.ID, p.fence
		name.Retry = 0
		h.book.Returned(name, j, fence+1)
		h.ref.end(p.ID)
	} else {
		h.next++
	}
	h.bound(1)
	waits := h.ref.returned(name, j)
	if !waits {
		h.wait(name, j)
	}
	require.Equal(h.t, waits, h.book.Returned(name, j, fence))
	require.Equal(h.t, waits, h.book.Returned(name, j, fence), "a report is repeated")
}

// gone cancels a waiting job. If it is the first one, the next read of all first jobs shows it, too.
func (h *history) gone() {
	list := h.ref.ordered()
	if len(list) == 0 {
		return
	}
	c := list[h.rng.IntN(len(list))]
	name, j := c.Class, c.jobs[h.rng.IntN(len(c.jobs))]
	first := j == c.jobs[0]
	h.ref.gone(name, j.ID)
	h.table[name] = slices.DeleteFunc(h.table[name], func(o Job) bool { return o == j })
	if first && h.rng.IntN(2) == 0 {
		h.readAll()
		return
	}
	h.book.Gone(name, j.ID)
}

// readAll reads the first job of each class, and all jobs that wait for their retry.
func (h *history) readAll() {
	retries := map[int64]bool{}
	h.book.HeadsBegin()
	for _, c := range h.ref.ordered() {
		if c.Retry != 0 {
			retries[c.Retry] = true
		} else {
			h.book.Head(c.Class, c.jobs[0])
		}
	}
	h.book.HeadsEnd()
	h.book.Retries(func(id int64) bool { return retries[id] })
}

// takeover adds what the table has of others: a row that another dispatcher adopts, one that runs, or earlier starts.
func (h *history) takeover() {
	dispatcher := 1 + h.rng.Int32N(3)
	p := h.permit()
	switch {
	case p != nil && h.rng.IntN(2) == 0:
		if p.dispatcher != dispatcher {
			h.ref.mark(p)
		}
		p.dispatcher = dispatcher
		h.book.Hold(Permit{Class: p.Class, Job: p.Job, Fence: p.fence, Dispatcher: dispatcher})
	case h.rng.IntN(2) == 0:
		name, j := h.class(), h.job()
		started := h.rng.IntN(2) == 0
		h.ref.hold(&refPermit{
			Class:      name,
			Job:        j,
			fence:      5,
			dispatcher: dispatcher,
			started:    started,
			admitted:   h.now,
			checkAt:    h.now + slotWait,
		})
		h.book.Hold(Permit{Class: name, Job: j, Fence: 5, Dispatcher: dispatcher, Started: started})
	default:
		key, at := []string{"x", "y", "p:1"}[h.rng.IntN(3)], h.now-h.rng.Int64N(2_000_000)
		h.ref.count(key, dispatcher, at, 1)
		h.book.Starts(key, dispatcher, at, 1)
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
		if p.Retry == 0 {
			h.wait(p.Class, p.Job)
		}
		h.ref.withdrawn(id)
		h.book.Withdrawn(id, fence)
		if h.full {
			h.book.Reread(p.Class, p.Job)
		}
	}
}

// offer gives a full book room for the classes that take part, and reads the first job of each class.
func (h *history) offer() {
	if !h.full {
		return
	}
	h.bound(0)
	for _, c := range h.ref.ordered() {
		if c.Retry == 0 {
			h.book.Head(c.Class, c.jobs[0])
		}
	}
}

// bound gives a full book room for the classes that take part, and for more.
func (h *history) bound(more int) {
	for _, c := range h.ref.classes {
		if c.Retry == 0 && (c.at != "" || c.keep) {
			more++
		}
	}
	if h.full {
		h.book.config.MaxClasses = max(more, 1)
	}
}

// dry reports whether a class waits for the answer to a refill. Classes with other keys may pass it.
func (h *history) dry() bool {
	for _, c := range h.book.classes {
		if len(c.jobs) == 0 {
			return true
		}
	}
	return false
}

// check compares the decisions, and tests that no key admits more than its limit.
func (h *history) check() {
	h.offer()
	h.refill()
	want := h.ref.admit()
	var got []Permit
	for {
		some := h.book.Admit(1)
		if len(some) == 0 && !h.dry() {
			break // further refills are answered after the next events
		}
		for _, a := range some {
			a.Counted = nil
			got = append(got, a)
			h.table[a.Class] = slices.DeleteFunc(h.table[a.Class], func(j Job) bool { return j == a.Job })
		}
		if h.dry() {
			h.refill()
		}
	}
	for i := range min(len(want), len(got)) { // the reference decides in one call
		want[i].Fence = got[i].Fence
		h.ref.permits[want[i].ID].fence = got[i].Fence
	}
	require.Equal(h.t, fmt.Sprint(want), fmt.Sprint(got), "%s", h)
	for _, a := range got {
		h.within(a)
	}
	require.Len(h.t, h.book.permits, len(h.ref.permits))
	if !h.full {
		require.Len(h.t, h.book.classes, len(h.ref.classes))
	}
	for _, c := range h.ref.ordered() {
		got := h.book.classes[c.Class]
		if got == nil && h.full {
			require.Empty(h.t, c.at, "%v takes part", c.Class)
			continue
		}
		at := ""
		switch {
		case got.at == nil:
		case got.at.isType:
			at = typeKey(got.at.name)
		default:
			at = got.at.name
		}
		require.Equal(h.t, fmt.Sprint(c.jobs[0], c.at, c.old), fmt.Sprint(got.first(), at, got.old), "%v\n%s", c.Class, h)
	}
}

// within tests the limits of the keys of an admitted row.
func (h *history) within(a Permit) {
	for _, n := range must(Parse(a.Keys)) {
		k, l := h.book.keys[n.Key], h.ref.limit(n.Key)
		p := *k.part(a.Dispatcher)
		if a.Dispatcher != 0 && l.Scope == Dispatcher {
			p.held, p.holders, p.alone = p.held+k.all.held, p.holders+k.all.holders, p.alone+k.all.alone
		}
		if n.Cost == All {
			require.EqualValues(h.t, 1, p.holders, "%q runs alone", n.Key)
		} else if l.Capacity != Unlimited {
			require.LessOrEqual(h.t, p.held, l.Capacity)
			require.Zero(h.t, p.alone)
		}
	}
	if h.ref.types != nil {
		require.LessOrEqual(h.t, h.book.kinds[a.Type].all.held, int64(h.ref.types[a.Type].Most))
	}
}

// String describes the state after decisions that differ.
func (h *history) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "now %d, limits %v, types %v\n", h.now, h.ref.limits, h.ref.types)
	for _, c := range h.ref.ordered() {
		fmt.Fprintf(&text, "waits: %v at %q old %v passed %d first %v", c.Class, c.at, c.old, c.passed, c.jobs[0])
		if b := h.book.classes[c.Class]; b != nil && b.at != nil {
			fmt.Fprintf(&text, "; book: at %q old %v", b.at.name, b.old)
		}
		for _, n := range c.needs {
			fmt.Fprintf(&text, "; %q: %v", n.Key, h.ref.admits(c, n))
		}
		text.WriteString("\n")
	}
	for _, p := range h.ref.permits {
		fmt.Fprintf(&text, "permit: %v %v started %v at %d\n", p.Class, p.Job, p.started, p.dispatcher)
	}
	return text.String()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestDecisionsEqualTheReference compares a Book with loops over all jobs. PERMITS_HISTORIES sets the number of histories.
func TestDecisionsEqualTheReference(t *testing.T) {
	seeds := uint64(2_000)
	if n, err := strconv.ParseUint(os.Getenv("PERMITS_HISTORIES"), 10, 64); err == nil {
		seeds = n
	} else if testing.Short() {
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
		h.full = seed%5 == 0
		h.ref.advance(h.now)
		h.book.Advance(h.now)
		for step := range 120 {
			h.step()
			h.check()
			if t.Failed() {
				t.Fatalf("seed %d step %d", seed, step)
			}
		}
	}
}
