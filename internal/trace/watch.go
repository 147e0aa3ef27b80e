package trace

import (
	"cmp"
	"math"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// Watch checks the placements of a live core by its events and effects. A Watch sees
// a queued job when the job is sent, one round trip to Postgres after its placement.
// Send.PlacedAt is the instant of the placement. All instants are those of the core's
// steps. The clock of the core does not advance during a step, so the instants are
// exact even if a step is late. A placement counts as misplaced if a compatible slot
// with fewer types was free in the millisecond before it and in the millisecond after
// it. Within a millisecond the order is not known.
//
// A slot that is reserved for a claim looks free until its job is sent. A slot that goes
// offline or is preempted may have been reserved for a job that was never sent. So such
// a slot does not count as free in the last uncertainMS. A slot is preempted by a
// request, or by a row whose claim was sent before its placement.
type Watch struct {
	slots    map[dispatcherd.SlotID]*watchedSlot
	numbers  map[slotName]dispatcherd.SlotID
	running  map[dispatcherd.JobID]dispatcherd.SlotID
	claimed  map[dispatcherd.JobID]int64 // rows that were claimed and not yet sent to a worker → when their latest claim was sent
	placed   []watchedPlacement
	findings Findings
}

// uncertainMS is longer than a claim takes.
const uncertainMS = 1000

type slotName struct {
	session dispatcherd.SessionID
	number  int32
}

type watchedSlot struct {
	types     map[string]bool
	session   dispatcherd.SessionID
	job       dispatcherd.JobID // 0: none
	leaving   bool
	freeSince int64 // never: it is not free
	free      []span
}

// span is an interval of time in milliseconds.
type span struct{ from, to int64 }

type watchedPlacement struct {
	at   int64
	typ  string
	size int // types of the slot
}

// NewWatch returns a Watch of a core that has made no step.
func NewWatch() *Watch {
	return &Watch{
		slots: map[dispatcherd.SlotID]*watchedSlot{}, numbers: map[slotName]dispatcherd.SlotID{},
		running: map[dispatcherd.JobID]dispatcherd.SlotID{}, claimed: map[dispatcherd.JobID]int64{},
	}
}

// Step records one step of the core. It does not keep ev and fx.
func (w *Watch) Step(now timing.Instant, ev actor.Event, fx []effect.Effect) {
	w.event(int64(now), ev)
	for i := range fx {
		switch e := fx[i].(type) {
		case *effect.Send:
			w.sent(e)
		case *effect.Claim:
			for _, id := range e.Request.IDs {
				w.claimed[id] = int64(now)
			}
		}
	}
}

func (w *Watch) event(now int64, ev actor.Event) {
	switch ev := ev.(type) {
	case actor.Together:
		for _, e := range ev.Events {
			w.event(now, e)
		}
	case actor.Registered:
		for _, s := range ev.Slots {
			w.register(now, ev.Session, s)
		}
	case actor.Withdrew:
		for id, s := range w.slots {
			if s.session == ev.Session && (len(ev.Numbers) == 0 || slices.ContainsFunc(ev.Numbers, func(n int32) bool {
				return w.numbers[slotName{ev.Session, n}] == id
			})) {
				s.leave(now)
			}
		}
	case actor.Unregistered:
		for _, s := range w.slots {
			if s.session == ev.Session {
				s.leave(now)
				delete(w.running, s.job)
				s.job = 0
			}
		}
	case actor.Released:
		for _, r := range ev.Results {
			w.released(now, ev.Session, r.Job)
		}
	}
}

func (w *Watch) register(now int64, session dispatcherd.SessionID, d dispatcherd.Slot) {
	s := &watchedSlot{types: map[string]bool{}, session: session, freeSince: now}
	for _, typ := range d.Types {
		s.types[typ] = true
	}
	w.slots[d.ID] = s
	w.numbers[slotName{session, d.Number}] = d.ID
}

func (w *Watch) released(now int64, session dispatcherd.SessionID, job dispatcherd.JobID) {
	id, running := w.running[job]
	s := w.slots[id]
	if !running || s.session != session {
		return // a late report, which changes nothing
	}
	delete(w.running, job)
	s.job = 0
	if !s.leaving {
		s.freeSince = now
	}
}

// take ends the time in which the slot is free. If this time has ended, take
// may move its end to an earlier placement, which was not known before.
func (s *watchedSlot) take(at int64) {
	if s.freeSince != never {
		s.free = append(s.free, span{s.freeSince, at})
		s.freeSince = never
	} else if n := len(s.free); n > 0 {
		s.free[n-1].to = min(s.free[n-1].to, at)
	}
}

// leave takes the slot offline.
func (s *watchedSlot) leave(now int64) {
	s.leaving = true
	if s.freeSince != never {
		s.endCertainty(now)
	}
}

// endCertainty ends the time in which the slot is known to be free.
func (s *watchedSlot) endCertainty(now int64) {
	if s.freeSince != never {
		s.take(max(s.freeSince, now-uncertainMS))
	}
}

func (w *Watch) sent(fx *effect.Send) {
	w.findings.Placements++
	at := int64(fx.PlacedAt)
	claimed, known := w.claimed[fx.Job]
	delete(w.claimed, fx.Job)
	s := w.slots[fx.Slot]
	if s == nil || !s.types[fx.Type] || s.session != fx.Session {
		w.findings.AffinityViolations++
		return
	}
	if _, running := w.running[fx.Job]; running || s.job != 0 {
		w.findings.DoublePlacements++
	}
	if fx.Mode == dispatcherd.OnDemand || known && claimed < at {
		s.endCertainty(at)
	} else {
		s.take(at)
	}
	s.job = fx.Job
	w.running[fx.Job] = fx.Slot
	w.placed = append(w.placed, watchedPlacement{at, fx.Type, len(s.types)})
}

// Findings checks all placements so far. A Watch cannot see lost jobs;
// Summarize counts them.
func (w *Watch) Findings() Findings {
	byType := map[string][]*watchedSlot{}
	for _, s := range w.slots {
		for typ := range s.types {
			byType[typ] = append(byType[typ], s)
		}
	}
	f := w.findings
	for _, p := range w.placed {
		if slices.ContainsFunc(byType[p.typ], func(s *watchedSlot) bool { return len(s.types) < p.size && s.freeAround(p.at) }) {
			f.Misplaced++
		}
	}
	return f
}

// freeAround reports whether the slot was free from before an instant until
// after it.
func (s *watchedSlot) freeAround(at int64) bool {
	i, _ := slices.BinarySearchFunc(s.free, at, func(f span, at int64) int { return cmp.Compare(f.to, at) })
	around := span{s.freeSince, math.MaxInt64}
	if i < len(s.free) {
		around = s.free[i]
	}
	return around.from < at && around.to > at
}
