package trace

import (
	"fmt"
	"slices"
	"sort"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// slotMap maps the slots of a trace to slots of a core.
//
// A trace slot registers repeatedly. A core slot never returns once it is
// withdrawn. So each session of a trace slot is a core slot of its own. Sessions
// are numbered by trace slot first, so that core slot ids sort like trace slot
// ids.
//
// A trace slot may register again before the job of its last session has ended.
// Then the slot must count as capacity at once and become free later. A new core
// slot cannot do this. So each session has its own type, and a placeholder waits
// for each session except the first one of a slot. A placeholder is a request of
// the type of its session. It is older than every job and has the highest
// possible score. If the slot registers while it is busy, the placeholder
// occupies it until the job has ended. If the slot registers while it is free,
// the placeholder is abandoned first. Every slot has exactly one such type, so
// the order by number of types does not change.
type slotMap struct {
	slots    []traceSlot
	byID     map[int64]int
	sessions map[string]dispatcherd.SessionID // by worker
	count    int                              // sessions of all slots; they are numbered 1..count
	first    []int                            // per slot, the number of its first session, or of the next slot's if it has none
}

// traceSlot is one slot of the trace.
type traceSlot struct {
	types       []string
	session     dispatcherd.SessionID // of its worker
	worker      string
	epoch       int               // registrations so far
	placeholder dispatcherd.JobID // of the present session
	busy        bool
	occupants   []occupant // jobs and placeholders that run on it in the core
}

// occupant is one job or placeholder that the core knows.
type occupant struct {
	job     dispatcherd.JobID
	attempt dispatcherd.Attempt
}

func newSlotMap(t *Trace) *slotMap {
	s := &slotMap{byID: map[int64]int{}, sessions: map[string]dispatcherd.SessionID{}}
	for i, slot := range t.Slots {
		s.byID[slot.ID] = i
		if _, known := s.sessions[slot.Worker]; !known {
			s.sessions[slot.Worker] = dispatcherd.SessionID(len(s.sessions) + 1)
		}
		s.slots = append(s.slots, traceSlot{types: slot.Types, session: s.sessions[slot.Worker], worker: slot.Worker})
	}
	registrations := make([]int, len(t.Slots))
	for _, e := range t.Registrations() {
		registrations[s.byID[e.Slot]] += int(e.Kind)
	}
	for _, n := range registrations {
		s.first = append(s.first, s.count+1)
		s.count += n
	}
	return s
}

func (s *slotMap) index(slot int64) int { return s.byID[slot] }

// ownType is the type that only one session of one slot has. A type of a
// trace must not have this form.
func ownType(number int) string { return fmt.Sprintf("|%d", number) }

// placeholders returns the requests for all later sessions.
func (s *slotMap) placeholders() []actor.Event {
	var evs []actor.Event
	for i, first := range s.first {
		end := s.count + 1
		if i+1 < len(s.first) {
			end = s.first[i+1]
		}
		for n := first + 1; n < end; n++ {
			evs = append(evs, actor.Requested{Job: dispatcherd.JobID(-n), Type: ownType(n), Priority: dispatcherd.MaxPriority, Wait: true})
		}
	}
	return evs
}

// placeholderDurations lets the core expect that placeholders take no time, so that no job has a higher score.
func (s *slotMap) placeholderDurations() (known actor.DurationsRead) {
	for n := range s.count {
		known.Others = append(known.Others, contract.Durations{Type: ownType(n + 1), N: 1 << 20})
	}
	return known
}

// register brings a slot online.
func (s *slotMap) register(i int) []actor.Event {
	traceSlot := &s.slots[i]
	number := s.first[i] + traceSlot.epoch
	traceSlot.epoch++
	traceSlot.placeholder = dispatcherd.JobID(-number)
	var evs []actor.Event
	switch {
	case traceSlot.busy:
		traceSlot.occupants = append(traceSlot.occupants, occupant{traceSlot.placeholder, 1})
	case traceSlot.epoch > 1:
		evs = append(evs, actor.Abandoned{Job: traceSlot.placeholder})
	}
	types := append(slices.Clone(traceSlot.types), ownType(number))
	slices.Sort(types)
	slot := dispatcherd.Slot{ID: dispatcherd.SlotID(number), Number: int32(number), Types: types}
	return append(evs, actor.Registered{Session: traceSlot.session, Worker: traceSlot.worker, Slots: []dispatcherd.Slot{slot}})
}

// withdraw takes a slot offline. The job of the slot continues.
func (s *slotMap) withdraw(i int) actor.Event {
	traceSlot := &s.slots[i]
	return actor.Withdrew{Session: traceSlot.session, Numbers: []int32{int32(s.first[i] + traceSlot.epoch - 1)}}
}

// occupy records that a job started on a slot.
func (s *slotMap) occupy(i int, fx *effect.Send) {
	s.slots[i].busy = true
	s.slots[i].occupants = append(s.slots[i].occupants, occupant{fx.Job, fx.Attempt})
}

// release frees a slot whose job has ended, and ends the placeholders that
// occupied it.
func (s *slotMap) release(i int) actor.Event {
	traceSlot := &s.slots[i]
	var results []actor.Result
	for _, g := range traceSlot.occupants {
		placeholder := g.job < 0 && int(-g.job) <= s.count // nothing is learned from it
		results = append(results, actor.Result{Job: g.job, Attempt: g.attempt, OK: !placeholder, Error: "no job"})
	}
	traceSlot.busy, traceSlot.occupants = false, traceSlot.occupants[:0]
	return actor.Released{Session: traceSlot.session, Results: results}
}

// slotOf returns the trace slot of a core slot: the last trace slot whose
// first session has a number of at most id.
func (s *slotMap) slotOf(id dispatcherd.SlotID) int {
	return sort.SearchInts(s.first, int(id)+1) - 1
}
