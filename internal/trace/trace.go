package trace

import (
	"cmp"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Trace is a recorded or generated workload. Load and Generate return a valid trace
// in canonical order. Check defines validity.
type Trace struct {
	Name   string      // shown to users: the base name of the folder, or the description of the generator
	Jobs   []Job       // ordered by arrival, then id
	Slots  []Slot      // ordered by id
	Events []SlotEvent // ordered by time, drains before registrations, then slot; if empty, every slot is online all the time
}

// Job is a job of the trace.
type Job struct {
	ID         int64  // positive, unique in the trace
	ArrivalMS  int64  // milliseconds since the start of the trace, ≥ 0
	Type       string // some slot of the trace supports it
	Priority   dispatcherd.Priority
	Mode       dispatcherd.Mode
	DurationMS int64 // duration on any slot in milliseconds, ≥ 1
	ExpectedMS int64 // as its producer expects it; 0 = not at all
}

// class returns the duration class of a job.
func (j *Job) class() dispatcherd.DurationClass {
	return dispatcherd.ClassOf(time.Duration(j.ExpectedMS) * time.Millisecond)
}

// Slot is a slot of the trace. If the trace has Events, the slot is offline at the
// start.
type Slot struct {
	ID     int64    // positive, unique in the trace
	Worker string   // name of the worker process that offers it
	Types  []string // at least one, sorted, no duplicates
}

// EventKind says what a SlotEvent does.
type EventKind uint8

// The two kinds, in the order in which they are applied at the same instant.
const (
	Drain    EventKind = iota // the slot ends its current job and accepts no more
	Register                  // the slot comes online
)

// String returns the kind as it is spelled in slot_events.csv.
func (k EventKind) String() string { return [...]string{"drain", "register"}[k] }

// SlotEvent is the time at which a slot goes online or offline. The events of a
// slot alternate, beginning with Register, and each Drain is later than its
// Register.
type SlotEvent struct {
	AtMS int64 // milliseconds since the start of the trace, ≥ 0
	Slot int64
	Kind EventKind
}

// sort puts the trace into canonical order.
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

// Registrations returns the events of the trace. If there are none it returns one
// registration of every slot, at the start.
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

// Placement is the start of a job on a slot.
type Placement struct {
	Job     int64
	StartMS int64 // milliseconds since the start of the trace
	Slot    int64
}

// sortPlacements orders a schedule by job, as in the files of schedules.
func sortPlacements(ps []Placement) {
	slices.SortFunc(ps, func(a, b Placement) int { return cmp.Compare(a.Job, b.Job) })
}
