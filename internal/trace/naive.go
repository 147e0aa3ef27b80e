package trace

import (
	"math"
	"slices"

	"github.com/dispatcherd/dispatcherd/scoring"
)

// Naive computes the exact schedule of a trace by brute force. At every
// instant, and again after each placement, it compares all waiting jobs and
// examines all slots. Naive is the reference for faster implementations. It
// shares only the formula of the score with them, and it is simple rather than
// fast. The schedule is ordered by job. It omits jobs that never start.
func Naive(t *Trace, w scoring.Weights) []Placement {
	n := &naive{trace: t, weights: w, slots: make([]naiveSlot, len(t.Slots))}
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
}

// naiveSlot is online or offline, and busy or free. These states are
// independent: a drained slot finishes its job, and may be online again
// before the job ends.
type naiveSlot struct {
	Slot
	online    bool
	busyUntil int64 // never: it is free
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
	for i := range n.slots {
		if n.slots[i].busyUntil == at {
			n.slots[i].busyUntil = never
		}
	}
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
		if best < 0 || score > bestScore || score == bestScore && older(job, n.waiting[best]) {
			best, bestSlot, bestScore = i, slot, score
		}
	}
	if best < 0 {
		return false
	}
	job := n.waiting[best]
	n.waiting = slices.Delete(n.waiting, best, best+1)
	bestSlot.busyUntil = at + job.DurationMS
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
