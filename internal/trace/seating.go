package trace

import (
	"fmt"
	"slices"
	"sort"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
)

// seating translates the slots of a trace into what a core knows.
//
// A slot of the trace comes on line again and again; a slot of the core never
// comes back once it is withdrawn. So each session of a trace slot is a core
// slot of its own. Sessions are numbered by trace slot first, so that the ids
// of core slots sort as those of the trace.
//
// A trace slot may be back before the job of its last session has ended. Then
// it counts as capacity at once and is free later, which no new slot of a core
// can be. So each session has a type of its own, and for each session but a
// slot's first a steward waits: a request of that type, older than every job
// and with every advantage that a score can have, that nothing can precede. If
// the slot comes back busy, the steward keeps the seat until the slot is free;
// if it comes back free, the steward is sent home first. Every slot has exactly
// one such type, so that which slot has the fewest types stays the same.
type seating struct {
	slots    []seat
	byID     map[int64]int
	sessions map[string]dispatcherd.SessionID // by worker
	count    int                              // sessions of all slots; they are numbered 1..count
	first    []int                            // per slot, the number of its first session, or of the next slot's if it has none
}

// seat is one slot of the trace.
type seat struct {
	types   []string
	session dispatcherd.SessionID // of its worker
	worker  string
	epoch   int               // registrations so far
	steward dispatcherd.JobID // of the present session
	busy    bool
	guests  []guest // what the core believes to run on it: the job and stewards
}

// guest is one job or steward in the core's books.
type guest struct {
	job     dispatcherd.JobID
	attempt dispatcherd.Attempt
}

func newSeating(t *Trace) *seating {
	s := &seating{byID: map[int64]int{}, sessions: map[string]dispatcherd.SessionID{}}
	for i, slot := range t.Slots {
		s.byID[slot.ID] = i
		if _, known := s.sessions[slot.Worker]; !known {
			s.sessions[slot.Worker] = dispatcherd.SessionID(len(s.sessions) + 1)
		}
		s.slots = append(s.slots, seat{types: slot.Types, session: s.sessions[slot.Worker], worker: slot.Worker})
	}
	comings := make([]int, len(t.Slots))
	for _, e := range t.Comings() {
		comings[s.byID[e.Slot]] += int(e.Kind)
	}
	for _, n := range comings {
		s.first = append(s.first, s.count+1)
		s.count += n
	}
	return s
}

func (s *seating) index(slot int64) int { return s.byID[slot] }

// ownType is the type that only one session of one slot has. No type of a
// trace contains a bar.
func ownType(number int) string { return fmt.Sprintf("|%d", number) }

// stewards requests the stewards of all later sessions.
func (s *seating) stewards() []actor.Event {
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

// register brings a slot on line.
func (s *seating) register(i int) []actor.Event {
	seat := &s.slots[i]
	number := s.first[i] + seat.epoch
	seat.epoch++
	seat.steward = dispatcherd.JobID(-number)
	var evs []actor.Event
	switch {
	case seat.busy:
		seat.guests = append(seat.guests, guest{seat.steward, 1})
	case seat.epoch > 1:
		evs = append(evs, actor.Abandoned{Job: seat.steward})
	}
	types := append(slices.Clone(seat.types), ownType(number))
	slices.Sort(types)
	slot := dispatcherd.Slot{ID: dispatcherd.SlotID(number), Number: int32(number), Types: types}
	return append(evs, actor.Registered{Session: seat.session, Worker: seat.worker, Slots: []dispatcherd.Slot{slot}})
}

// withdraw takes a slot off line; its job goes on.
func (s *seating) withdraw(i int) actor.Event {
	seat := &s.slots[i]
	return actor.Withdrew{Session: seat.session, Numbers: []int32{int32(s.first[i] + seat.epoch - 1)}}
}

// sit notes that a job started on a slot.
func (s *seating) sit(i int, fx *actor.Send) {
	s.slots[i].busy = true
	s.slots[i].guests = append(s.slots[i].guests, guest{fx.Job, fx.Attempt})
}

// leave frees a slot whose job has ended, and sends the stewards home that kept
// it meanwhile.
func (s *seating) leave(i int) actor.Event {
	seat := &s.slots[i]
	var results []actor.Result
	for _, g := range seat.guests {
		results = append(results, actor.Result{Job: g.job, Attempt: g.attempt, OK: true})
	}
	seat.busy, seat.guests = false, seat.guests[:0]
	return actor.Released{Session: seat.session, Results: results}
}

// slotOf finds the trace slot behind a slot of the core: the last one whose
// first session is not after it.
func (s *seating) slotOf(id dispatcherd.SlotID) int {
	return sort.SearchInts(s.first, int(id)+1) - 1
}
