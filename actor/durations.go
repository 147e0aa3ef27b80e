package actor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/heap"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// Durations is what is known of how long the jobs of each type and duration class take. An estimate is one number per type and
// class at any instant, so it does not change the order within a lane. Nil learns nothing.
type Durations struct {
	types     map[string]*typeDurations
	most      int              // types
	all       scoring.Estimate // of all types
	misjudged [5]uint64
}

// typeDurations is what is known of the durations of one type, by class. Nil learns nothing.
type typeDurations [dispatcherd.DurationClasses]classDurations

// classDurations is what is known of the durations of one type and class.
type classDurations struct {
	own    scoring.Estimate // of attempts that ended here
	others scoring.Estimate // of those at other dispatchers
	sent   bool             // Changed has returned own

	runs heap.Heap[*run, byStart] // the running attempts; the first one is the oldest

	at       timing.Instant // instant of expected; -1 = it must be computed
	expected int64          // milliseconds
}

// run is a running attempt. The zero value is none.
type run struct {
	since timing.Instant
	place int32 // in class.runs
}

// byStart is the order of class.runs.
type byStart struct{}

// Before compares the starts.
func (byStart) Before(a, b *run) bool { return a.since < b.since }

// Place is the position in class.runs.
func (byStart) Place(r *run) *int32 { return &r.place }

// late appends the starts of running attempts that began before an instant, in order, at most lateRuns.
func late(h heap.Heap[*run, byStart], before timing.Instant, starts []timing.Instant) []timing.Instant {
	var room [lateRuns + 2]int
	next := append(room[:0], 0) // places whose parents were returned, the oldest last
	for len(next) > 0 && len(starts) < lateRuns {
		place := next[len(next)-1]
		next = next[:len(next)-1]
		if place >= len(h) || h[place].since >= before {
			continue
		}
		starts = append(starts, h[place].since)
		for child := 2*place + 1; child <= 2*place+2 && child < len(h); child++ {
			at, _ := slices.BinarySearchFunc(next, h[child].since, func(p int, since timing.Instant) int { return cmp.Compare(since, h[p].since) })
			next = slices.Insert(next, at, child)
		}
	}
	return starts
}

// lateRuns is the number of running attempts that an estimate considers. More would hardly
// change it, because it decays.
const lateRuns = 64

// newDurations returns Durations that remembers at most so many types.
func newDurations(most int) *Durations {
	return &Durations{types: map[string]*typeDurations{}, most: most}
}

// Of returns what is known of a type. It is remembered while no slot supports the type. At the bound, what is learned is not
// remembered.
func (b *Durations) Of(name string) *typeDurations {
	if b == nil {
		return nil
	}
	t := b.types[name]
	if t == nil {
		t = new(typeDurations)
		for i := range t {
			t[i].at, t[i].sent = -1, true
		}
		if len(b.types) < b.most {
			b.types[name] = t
		}
	}
	return t
}

// Expected returns how many milliseconds a job of a type and class takes. A running attempt that is
// older counts as if it ended now.
func (b *Durations) Expected(t *typeDurations, c dispatcherd.DurationClass, now timing.Instant) int64 {
	d := &t[c]
	if d.at == now {
		return d.expected
	}
	known, prior := d.own.Plus(d.others), b.prior(t, c)
	var room [lateRuns]timing.Instant
	for _, since := range late(d.runs, now-timing.Instant(scoring.Expected(known.Mean(prior))), room[:0]) {
		known.Observe(int64(now - since))
	}
	d.at, d.expected = now, scoring.Expected(known.Mean(prior))
	return d.expected
}

// Learned reports whether some attempt of a class has succeeded. Otherwise Expected depends on the prior.
func (t *typeDurations) Learned(c dispatcherd.DurationClass) bool {
	return t[c].own.N+t[c].others.N > 0
}

// prior returns the logarithm that is expected of a class of which nothing is known: the middle of the class. Of jobs without an
// expected duration it is what is known of all jobs of the type, or else of all types.
func (b *Durations) prior(t *typeDurations, c dispatcherd.DurationClass) int64 {
	if c != dispatcherd.NoDuration {
		return scoring.Prior(c)
	}
	var all scoring.Estimate
	for i := range t {
		all = all.Plus(t[i].own).Plus(t[i].others)
	}
	return all.Mean(b.all.Mean(scoring.FirstPrior))
}

// Learn adds the duration of an attempt that succeeded, in milliseconds.
func (b *Durations) Learn(t *typeDurations, c dispatcherd.DurationClass, ms int64) {
	if b == nil {
		return
	}
	if c != dispatcherd.NoDuration {
		b.misjudged[misjudged(ms, c)]++
	}
	d := &t[c]
	d.own.Observe(ms)
	d.at, d.sent = -1, false
	b.all.Observe(ms)
}

// Misjudged counts the attempts with an expected duration that succeeded: those that took less than a sixteenth of the middle of
// their class, less than a quarter, at most four times as long, at most sixteen times as long, and longer.
func (b *Durations) Misjudged() (n [5]uint64) {
	if b != nil {
		n = b.misjudged
	}
	return n
}

// misjudged returns the position of an attempt in Misjudged.
func misjudged(ms int64, c dispatcherd.DurationClass) int {
	at, middle := 0, int64(1)<<c.Octave()
	for _, bound := range [...]int64{middle / 16, middle / 4, 4*middle + 1, 16*middle + 1} {
		if ms >= bound {
			at++
		}
	}
	return at
}

// Start adds a running attempt, unless it is there.
func (t *typeDurations) Start(r *run, c dispatcherd.DurationClass, since timing.Instant) {
	if t == nil || r.place != 0 {
		return
	}
	r.since = since
	t[c].runs.Put(r)
	if since < t[c].at { // otherwise it is not late
		t[c].at = -1
	}
}

// End removes a running attempt, if it is there.
func (t *typeDurations) End(r *run, c dispatcherd.DurationClass) {
	if t == nil || r.place == 0 {
		return
	}
	t[c].runs.Remove(r)
	*r = run{}
	t[c].at = -1
}

// Changed returns what was learned here since the last call, ordered by type and class.
func (b *Durations) Changed() (list []contract.Durations) {
	for _, name := range b.names() {
		for i := range b.types[name] {
			if d := &b.types[name][i]; !d.sent {
				d.sent = true
				list = append(list, contract.Durations{Type: name, Class: dispatcherd.DurationClass(i), N: d.own.N, S: d.own.S})
			}
		}
	}
	return list
}

func (b *Durations) names() []string {
	if b == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(b.types)) // order-free: they are sorted
}

// Read adds what the predecessor of this dispatcher has learned, unless this one has learned something of the same type and class, and
// replaces what the others have learned. They count as much as one dispatcher, so that those that are gone do not outweigh this one.
func (b *Durations) Read(own, others []contract.Durations) {
	if b == nil {
		return
	}
	for _, r := range own {
		d, e := &b.Of(r.Type)[r.Class], scoring.Estimate{N: r.N, S: r.S}
		if d.own == (scoring.Estimate{}) {
			d.own, d.at = e, -1
			b.all = b.all.Plus(e)
		}
	}
	for _, t := range b.types { // order-free: each type alone
		for i := range t {
			t[i].others, t[i].at = scoring.Estimate{}, -1
		}
	}
	for _, r := range others {
		d := &b.Of(r.Type)[r.Class]
		d.others, d.at = scoring.Estimate{N: r.N, S: r.S}.Capped(), -1
	}
}

// Expectation is how long the jobs of a type and duration class take.
type Expectation struct {
	Type     string
	Class    dispatcherd.DurationClass
	Duration time.Duration
}

// List returns what was learned of types, at most of most of them, in the order of their names.
func (b *Durations) List(most int, now timing.Instant) (list []Expectation) {
	names := b.names()
	for _, name := range names[:min(most, len(names))] {
		t := b.types[name]
		for c := range dispatcherd.DurationClass(dispatcherd.DurationClasses) {
			if t.Learned(c) {
				list = append(list, Expectation{name, c, time.Duration(b.Expected(t, c, now)) * time.Millisecond})
			}
		}
	}
	return list
}
