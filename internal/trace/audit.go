package trace

import "fmt"

// FactKind says what a Fact reports.
type FactKind uint8

// The facts, named from the dispatcher's point of view and told in the order
// in which it came to know or decided them.
const (
	JobSubmitted   FactKind = iota // Job with Types[0] waits
	SlotRegistered                 // Slot supports Types and is free, or busy if a job was placed on it before
	SlotDrained                    // Slot takes no more
	SlotGone                       // Slot is gone with what ran on it; its jobs wait again
	JobPlaced                      // Job was given Slot: reserved, claimed or sent, whichever the teller sees first
	SlotFreed                      // Slot gave Job back; the job waits again unless JobEnded says otherwise
	JobEnded                       // Job is over for good
)

// Fact is one thing that happened to a job, to a slot, or to both.
type Fact struct {
	Kind  FactKind
	Slot  int64
	Job   int64
	Types []string // SlotRegistered: what it supports; JobSubmitted: the one type
}

// Findings counts what must never happen.
type Findings struct {
	Placements         int `json:"placements"`          // decisions looked at
	Misplaced          int `json:"misplaced"`           // used a versatile slot while a more specialised compatible one was free
	AffinityViolations int `json:"affinity_violations"` // used a slot that does not support the job's type
	DoublePlacements   int `json:"double_placements"`   // a job that was already somewhere, or a slot that was not free to take one
	Lost               int `json:"lost"`                // submitted and not ended
}

// Clean reports whether nothing was found.
func (f Findings) Clean() bool {
	return f.Misplaced == 0 && f.AffinityViolations == 0 && f.DoublePlacements == 0 && f.Lost == 0
}

// Auditor judges a run from the facts alone. It looks at every slot for every
// placement and knows nothing of classes or indexes, because it is there to
// disagree with code that does. Not for concurrent use.
type Auditor struct {
	slots    map[int64]*auditedSlot
	waiting  map[int64]string // submitted and not ended → type
	places   map[int64]int64  // job → slot it is on
	findings Findings
	examples []string
}

type auditedSlot struct {
	types    map[string]bool
	draining bool
	jobs     int // placed on it and not given back; more than one is a finding
}

// maxExamples bounds the sentences an Auditor keeps.
const maxExamples = 20

// NewAuditor returns an Auditor that has seen nothing yet.
func NewAuditor() *Auditor {
	return &Auditor{slots: map[int64]*auditedSlot{}, waiting: map[int64]string{}, places: map[int64]int64{}}
}

// Observe takes the next fact.
func (a *Auditor) Observe(f Fact) {
	switch f.Kind {
	case JobSubmitted:
		a.waiting[f.Job] = f.Types[0]
	case SlotRegistered:
		a.register(f)
	case SlotDrained:
		if s := a.slots[f.Slot]; s != nil {
			s.draining = true
		}
	case SlotGone:
		delete(a.slots, f.Slot)
		for job, slot := range a.places {
			if slot == f.Slot {
				delete(a.places, job)
			}
		}
	case JobPlaced:
		a.place(f)
	case SlotFreed:
		a.free(f)
	case JobEnded:
		delete(a.waiting, f.Job)
	}
}

func (a *Auditor) register(f Fact) {
	s := &auditedSlot{types: map[string]bool{}}
	for _, typ := range f.Types {
		s.types[typ] = true
	}
	if before := a.slots[f.Slot]; before != nil {
		s.jobs = before.jobs
	}
	a.slots[f.Slot] = s
}

func (a *Auditor) place(f Fact) {
	a.findings.Placements++
	typ, submitted := a.waiting[f.Job]
	slot := a.slots[f.Slot]
	if !submitted || slot == nil || !slot.types[typ] {
		a.findings.AffinityViolations++
		a.note("job %d of type %q was placed on slot %d, which does not support it or is not there", f.Job, typ, f.Slot)
		return
	}
	if on, placed := a.places[f.Job]; placed {
		a.findings.DoublePlacements++
		a.note("job %d was placed on slot %d while it was on slot %d", f.Job, f.Slot, on)
	} else if slot.jobs > 0 || slot.draining {
		a.findings.DoublePlacements++
		a.note("job %d was placed on slot %d, which was busy or draining", f.Job, f.Slot)
	}
	for id, other := range a.slots {
		if other.jobs == 0 && !other.draining && other.types[typ] && len(other.types) < len(slot.types) {
			a.findings.Misplaced++
			a.note("job %d of type %q was placed on slot %d with %d types while slot %d with %d was free",
				f.Job, typ, f.Slot, len(slot.types), id, len(other.types))
			break
		}
	}
	a.places[f.Job] = f.Slot
	slot.jobs++
}

// free ignores what a slot says about a job that is no longer on it: a late
// release changes nothing.
func (a *Auditor) free(f Fact) {
	if on, placed := a.places[f.Job]; !placed || on != f.Slot {
		return
	}
	delete(a.places, f.Job)
	s := a.slots[f.Slot]
	s.jobs--
	if s.jobs == 0 && s.draining {
		delete(a.slots, f.Slot)
	}
}

func (a *Auditor) note(format string, args ...any) {
	if len(a.examples) < maxExamples {
		a.examples = append(a.examples, fmt.Sprintf(format, args...))
	}
}

// Findings returns the counts so far. Lost is what has been submitted and has
// not ended, so it means something only when everything should have.
func (a *Auditor) Findings() Findings {
	f := a.findings
	f.Lost = len(a.waiting)
	return f
}

// Examples returns the first findings in words, at most twenty.
func (a *Auditor) Examples() []string { return a.examples }
