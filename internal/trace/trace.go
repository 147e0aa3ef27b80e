package trace

import (
	"cmp"
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

// Trace is one recorded or generated workload. Load and Generate return it
// valid and in canonical order; Check says what a valid trace is.
type Trace struct {
	Name   string      // for people: the folder's base name, or what the generator says
	Jobs   []Job       // by arrival, then id
	Slots  []Slot      // by id
	Events []SlotEvent // by time, drains before registrations, then slot; empty: every slot is online from the start, for good
}

// Job is one piece of work that the trace brings.
type Job struct {
	ID         int64  // positive, unique in the trace
	ArrivalMS  int64  // milliseconds since the start of the trace, ≥ 0
	Type       string // some slot of the trace supports it
	Priority   dispatcherd.Priority
	Mode       dispatcherd.Mode
	DurationMS int64 // milliseconds of work, ≥ 1, on any slot
}

// Slot is one slot of the trace. With Events in the trace it begins offline.
type Slot struct {
	ID     int64    // positive, unique in the trace
	Worker string   // the process that offers it
	Types  []string // at least one, sorted, no duplicates
}

// EventKind says what a SlotEvent does.
type EventKind uint8

// The two kinds, in the order in which they are applied at one instant.
const (
	Drain    EventKind = iota // the slot ends its current job and takes no more
	Register                  // the slot comes online
)

// String returns the kind as it is spelled in slot_events.csv.
func (k EventKind) String() string { return [...]string{"drain", "register"}[k] }

// SlotEvent brings a slot online or takes it off. The events of one slot
// alternate, beginning with Register, and each Drain is later than its Register.
type SlotEvent struct {
	AtMS int64 // milliseconds since the start of the trace, ≥ 0
	Slot int64
	Kind EventKind
}

// sort brings the trace into canonical order.
func (t *Trace) sort() {
	slices.SortFunc(t.Jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.ArrivalMS, b.ArrivalMS), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(t.Slots, func(a, b Slot) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(t.Events, func(a, b SlotEvent) int {
		return cmp.Or(cmp.Compare(a.AtMS, b.AtMS), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Slot, b.Slot))
	})
}

// Workers returns the names of the trace's workers, sorted.
func (t *Trace) Workers() []string {
	var names []string
	for _, s := range t.Slots {
		names = append(names, s.Worker)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Types returns every type that a slot of the trace supports, sorted.
func (t *Trace) Types() []string {
	var types []string
	for _, s := range t.Slots {
		types = append(types, s.Types...)
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// Registrations returns the events of the trace; for a trace without events it is
// the registration of every slot at its start.
func (t *Trace) Registrations() []SlotEvent {
	if len(t.Events) > 0 {
		return t.Events
	}
	all := make([]SlotEvent, len(t.Slots))
	for i, s := range t.Slots {
		all[i] = SlotEvent{Slot: s.ID, Kind: Register}
	}
	return all
}

// Placement says when a job started and where.
type Placement struct {
	Job     int64
	StartMS int64 // milliseconds since the start of the trace
	Slot    int64
}

// sortPlacements orders a schedule by job, as the files of schedules are.
func sortPlacements(ps []Placement) {
	slices.SortFunc(ps, func(a, b Placement) int { return cmp.Compare(a.Job, b.Job) })
}
