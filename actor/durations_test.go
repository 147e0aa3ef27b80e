package actor

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/heap"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// learner is a Durations with a type, and a clock.
type learner struct {
	*Durations
	typ *typeDurations
	now timing.Instant
}

func newLearner() *learner {
	b := newDurations(100)
	return &learner{Durations: b, typ: b.Of("pdf"), now: 1}
}

// start returns an attempt that runs since an earlier time.
func (l *learner) start(c dispatcherd.DurationClass, ago time.Duration) *run {
	r := &run{}
	l.typ.Start(r, c, l.now.After(-ago))
	return r
}

// ran is an attempt that succeeded after a time.
func (l *learner) ran(c dispatcherd.DurationClass, took time.Duration) {
	r := l.start(c, took)
	l.Learn(l.typ, c, took.Milliseconds())
	l.typ.End(r, c)
}

func (l *learner) takes(c dispatcherd.DurationClass) int64 { return l.Expected(l.typ, c, l.now) }

func TestNothingIsKnownAtFirst(t *testing.T) {
	l := newLearner()
	require.EqualValues(t, 1<<16, l.takes(dispatcherd.NoDuration))
	for c := dispatcherd.DurationClass(1); c < dispatcherd.DurationClasses; c++ {
		require.EqualValues(t, 1<<c.Octave(), l.takes(c))
	}
	require.Empty(t, l.List(10, l.now))
}

// A class that takes much longer than it says is soon expected to, and a type without classes follows all its jobs.
func TestClassesAreLabels(t *testing.T) {
	l := newLearner()
	for range 200 {
		l.ran(1, time.Hour)
	}
	hour := time.Hour.Milliseconds()
	require.InEpsilon(t, hour, l.takes(1), 0.2)
	require.InEpsilon(t, hour, l.takes(dispatcherd.NoDuration), 0.2, "what is known of the type")
	require.EqualValues(t, 1<<15, l.takes(2))
	other := l.Expected(l.Of("scan"), dispatcherd.NoDuration, l.now)
	require.InEpsilon(t, hour, other, 0.2, "what is known of all types")
	require.Equal(t, [5]uint64{4: 200}, l.Misjudged())
	list := l.List(10, l.now)
	require.Len(t, list, 1)
	require.Equal(t, Expectation{"pdf", 1, time.Duration(l.takes(1)) * time.Millisecond}, list[0])
}

func TestErrorsOfExpectedDurationsAreCounted(t *testing.T) {
	l := newLearner()
	middle := time.Duration(1<<dispatcherd.DurationClass(3).Octave()) * time.Millisecond
	for _, d := range []time.Duration{middle / 17, middle / 16, middle / 4, middle, 4 * middle, 5 * middle, 16 * middle, 17 * middle} {
		l.ran(3, d)
	}
	l.ran(dispatcherd.NoDuration, middle)
	require.Equal(t, [5]uint64{1, 1, 3, 2, 1}, l.Misjudged())
}

// Jobs of a class that all still run count as soon as they are older than expected.
func TestRunningJobsCountOnceTheyAreOlderThanExpected(t *testing.T) {
	l := newLearner()
	var running []*run
	for range 100 {
		running = append(running, l.start(1, 0))
	}
	l.now = l.now.After(5 * time.Second)
	require.EqualValues(t, 1<<13, l.takes(1), "they are not older")
	l.now = l.now.After(time.Hour)
	require.InEpsilon(t, time.Hour.Milliseconds(), l.takes(1), 0.2)
	require.EqualValues(t, 1<<15, l.takes(2))
	adopted := l.start(1, 2*time.Hour)
	d := &l.typ[1]
	require.Equal(t, adopted, d.runs[0])
	l.typ.Start(adopted, 1, 0) // it is among them already
	require.Len(t, d.runs, 101)
	for _, r := range running {
		l.typ.End(r, 1)
		l.typ.End(r, 1) // it is not among them any more
	}
	require.Equal(t, heap.Heap[*run, byStart]{adopted}, d.runs)
	require.Greater(t, l.takes(1), int64(1<<13), "the adopted one is older than expected")
	l.typ.End(adopted, 1)
	require.EqualValues(t, 1<<13, l.takes(1))
}

// The oldest attempts count, as a sorted list says.
func TestOldestRunningJobsCount(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	l := newLearner()
	var running []*run
	for range 10_000 {
		if n := len(running); n > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(n)
			l.typ.End(running[i], 1)
			running[i] = running[n-1]
			running = running[:n-1]
		} else {
			running = append(running, l.start(1, time.Duration(rng.IntN(200))*time.Second))
		}
		before := l.now - timing.Instant(rng.IntN(200_000))
		var want []timing.Instant
		for _, r := range running {
			if r.since < before {
				want = append(want, r.since)
			}
		}
		slices.Sort(want)
		require.Equal(t, want[:min(len(want), lateRuns)], late(l.typ[1].runs, before, nil))
		if len(running) > 500 {
			for _, r := range running[100:] {
				l.typ.End(r, 1)
			}
			running = running[:100]
		}
	}
}

func TestLearnedDurationsAreReturnedOnce(t *testing.T) {
	l := newLearner()
	l.ran(3, time.Minute)
	l.ran(dispatcherd.NoDuration, time.Second)
	list := l.Changed()
	require.Len(t, list, 2)
	require.Equal(t, contract.Durations{Type: "pdf", Class: 3, N: list[1].N, S: list[1].S}, list[1])
	require.Empty(t, l.Changed())
	l.ran(3, time.Minute)
	require.Len(t, l.Changed(), 1)
}

// A successor begins with what its predecessor has learned, and with what others have learned. Later it replaces only the latter.
func TestLearnedDurationsAreShared(t *testing.T) {
	first := newLearner()
	for range 100 {
		first.ran(3, time.Hour)
	}
	known := first.Changed()
	next := newLearner()
	next.Read(known, nil)
	require.Equal(t, first.takes(3), next.takes(3))
	other := next.Expected(next.Of("scan"), dispatcherd.NoDuration, next.now)
	require.InEpsilon(t, time.Hour.Milliseconds(), other, 0.2)
	require.Empty(t, next.Changed(), "they are stored already")
	next.ran(3, time.Second)
	before := next.takes(3)
	next.Read(known, nil)
	require.Equal(t, before, next.takes(3), "what was learned here replaces them")
	third := newLearner()
	third.Read(nil, known)
	require.Equal(t, first.takes(3), third.takes(3))
	third.Read(nil, []contract.Durations{{Type: "pdf", Class: 3}})
	require.EqualValues(t, 1<<17, third.takes(3))
}

// What many others have learned counts as much as what one can have learned, and only as long as they have it.
func TestOthersCountAsOneDispatcher(t *testing.T) {
	l := newLearner()
	for range 100 {
		l.ran(1, time.Second)
	}
	estimate := func() int64 { return l.Expected(l.typ, 1, l.now) }
	alone := estimate()
	const most = 64 * 1024 // samples times 1024
	one := contract.Durations{Type: "pdf", Class: 1, N: most, S: 22 * most}
	l.Read(nil, []contract.Durations{one})
	together := estimate()
	require.Greater(t, together, 2*alone)
	l.Read(nil, []contract.Durations{{Type: "pdf", Class: 1, N: 100 * one.N, S: 100 * one.S}})
	require.Equal(t, together, estimate())
	l.Read(nil, nil)
	require.Equal(t, alone, estimate())
}

func TestNoBookLearnsNothing(t *testing.T) {
	var b *Durations
	typ := b.Of("pdf")
	r := &run{}
	typ.Start(r, 1, 1)
	b.Learn(typ, 1, 1)
	typ.End(r, 1)
	b.Read([]contract.Durations{{Type: "pdf"}}, nil)
	require.Empty(t, b.Changed())
	require.Empty(t, b.List(1, 1))
	require.Zero(t, b.Misjudged())
}

func TestRememberedTypesAreBounded(t *testing.T) {
	l := newLearner()
	for i := range 200 {
		l.Learn(l.Of(strconv.Itoa(i)), 1, 1)
	}
	require.Len(t, l.Changed(), 99)
	require.Len(t, l.List(50, l.now), 50)
}
