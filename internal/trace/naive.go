package trace

import (
	"cmp"
	"math"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// Naive computes the exact schedule of a trace by brute force. At every
// instant, and again after each placement, it compares all waiting jobs and
// examines all slots. Naive is the reference for faster implementations. It
// shares only the formula of the score with them, and it is simple rather than
// fast. The schedule is ordered by job. It omits jobs that never start.
func Naive(t *Trace, w scoring.Weights) []Placement {
	n := &naive{trace: t, weights: w, slots: make([]naiveSlot, len(t.Slots)), estimates: map[naiveLane]*naiveEstimate{}}
	for i, s := range t.Slots {
		n.slots[i] = naiveSlot{Slot: s, busyUntil: never}
	}
	events, jobs := t.Registrations(), t.Jobs
	for {
		at := n.nextCompletion()
		if len(events) > 0 {
			at = min(at, events[0].AtMS)
		}
		if len(jobs) > 0 {
			at = min(at, jobs[0].ArrivalMS)
		}
		if at == never {
			sortPlacements(n.placed)
			return n.placed
		}
		for ; len(events) > 0 && events[0].AtMS == at; events = events[1:] {
			n.slotNamed(events[0].Slot).online = events[0].Kind == Register
		}
		n.complete(at)
		for ; len(jobs) > 0 && jobs[0].ArrivalMS == at; jobs = jobs[1:] {
			n.waiting = append(n.waiting, jobs[0])
		}
		for n.placeBest(at) {
		}
	}
}

// never is later than everything in a trace.
const never = math.MaxInt64

type naive struct {
	trace   *Trace
	weights scoring.Weights
	slots   []naiveSlot
	waiting []Job
	placed  []Placement

	estimates map[naiveLane]*naiveEstimate
	all       scoring.Estimate // of all types
}

// naiveLane is a type with a duration class.
type naiveLane struct {
	typ   string
	class dispatcherd.DurationClass
}

// naiveEstimate is what is known of the durations of a type and class.
type naiveEstimate struct {
	scoring.Estimate

	starts []int64 // of the running jobs, ascending
}

// naiveSlot is online or offline, and busy or free. These states are
// independent: a drained slot finishes its job, and may be online again
// before the job ends.
type naiveSlot struct {
	Slot
	online    bool
	busyUntil int64 // never: it is free
	job       int   // index of the job on it
	since     int64
}

func (s *naiveSlot) supports(typ string) bool { return slices.Contains(s.Types, typ) }

func (n *naive) slotNamed(id int64) *naiveSlot {
	i := slices.IndexFunc(n.slots, func(s naiveSlot) bool { return s.ID == id })
	return &n.slots[i]
}

func (n *naive) nextCompletion() int64 {
	at := int64(never)
	for _, s := range n.slots {
		at = min(at, s.busyUntil)
	}
	return at
}

func (n *naive) complete(at int64) {
	var ended []*naiveSlot
	for i := range n.slots {
		if s := &n.slots[i]; s.busyUntil == at {
			s.busyUntil = never
			ended = append(ended, s)
		}
	}
	slices.SortFunc(ended, func(a, b *naiveSlot) int { return cmp.Compare(a.job, b.job) })
	for _, s := range ended {
		e := n.estimate(&n.trace.Jobs[s.job])
		e.starts = slices.Delete(e.starts, slices.Index(e.starts, s.since), slices.Index(e.starts, s.since)+1)
		e.Observe(at - s.since)
		n.all.Observe(at - s.since)
	}
}

func (n *naive) estimate(j *Job) *naiveEstimate {
	lane := naiveLane{j.Type, j.class()}
	if n.estimates[lane] == nil {
		n.estimates[lane] = &naiveEstimate{}
	}
	return n.estimates[lane]
}

// expected returns how many milliseconds a job takes: the decayed geometric mean of its type and class, in which
// jobs count that have been running for longer than it. If none has ended, it is that of the class itself, or
// of all jobs of the type, or of all jobs.
func (n *naive) expected(at int64, j *Job) int64 {
	var prior int64
	if j.class() != dispatcherd.NoDuration {
		prior = scoring.Prior(j.class())
	} else {
		var typ scoring.Estimate
		for lane, e := range n.estimates {
			if lane.typ == j.Type {
				typ = typ.Plus(e.Estimate)
			}
		}
		prior = typ.Mean(n.all.Mean(scoring.FirstPrior))
	}
	e := n.estimate(j)
	known := e.Estimate
	for i, start := range e.starts {
		if i < 64 && at-start > scoring.Expected(e.Mean(prior)) {
			known.Observe(at - start)
		}
	}
	return scoring.Expected(known.Mean(prior))
}

// placeBest starts the eligible job with the highest score, and reports
// whether there was one.
func (n *naive) placeBest(at int64) bool {
	best, bestSlot, bestScore := -1, (*naiveSlot)(nil), scoring.Milli(0)
	for i, job := range n.waiting {
		slot, capacity := n.bestSlot(job.Type)
		if slot == nil {
			continue
		}
		score := n.weights.Score(job.Mode, job.Priority, at-job.ArrivalMS, capacity).Total()
		if n.weights.DurationWindow > 0 {
			score += n.weights.Brevity(n.expected(at, &n.waiting[i]))
		}
		if best < 0 || score > bestScore || score == bestScore && older(job, n.waiting[best]) {
			best, bestSlot, bestScore = i, slot, score
		}
	}
	if best < 0 {
		return false
	}
	job := n.waiting[best]
	n.waiting = slices.Delete(n.waiting, best, best+1)
	bestSlot.busyUntil, bestSlot.since = at+job.DurationMS, at
	bestSlot.job = slices.IndexFunc(n.trace.Jobs, func(j Job) bool { return j.ID == job.ID })
	e := n.estimate(&job)
	e.starts = append(e.starts, at)
	n.placed = append(n.placed, Placement{Job: job.ID, StartMS: at, Slot: bestSlot.ID})
	return true
}

// bestSlot returns the free registered slot that supports a type and has the
// fewest types; among equals, the slot with the smallest id; nil if there is
// none. It also returns the capacity of the type.
func (n *naive) bestSlot(typ string) (best *naiveSlot, capacity int) {
	for i := range n.slots {
		s := &n.slots[i]
		if !s.online || !s.supports(typ) {
			continue
		}
		capacity++
		if s.busyUntil != never {
			continue
		}
		if best == nil || len(s.Types) < len(best.Types) || len(s.Types) == len(best.Types) && s.ID < best.ID {
			best = s
		}
	}
	return best, capacity
}

func older(a, b Job) bool {
	return a.ArrivalMS < b.ArrivalMS || a.ArrivalMS == b.ArrivalMS && a.ID < b.ID
}
