package trace

import "fmt"

// FactKind says what a Fact reports.
type FactKind uint8

// The kinds of facts. An Auditor gets the facts in the order in which the
// dispatcher learned or decided them.
const (
	JobSubmitted   FactKind = iota // Job with Types[0] waits
	SlotRegistered                 // Slot supports Types and is free, or busy if a job was placed on it before
	SlotDrained                    // Slot takes no more jobs
	SlotGone                       // Slot is removed; the jobs that ran on it wait again
	JobPlaced                      // Job was placed on Slot: reserved, claimed or sent, whichever the observer sees first
	SlotFreed                      // Job left Slot; the job waits again unless JobEnded follows
	JobEnded                       // Job has ended permanently
)

// Fact is one thing that happened to a job, to a slot, or to both.
type Fact struct {
	Kind  FactKind
	Slot  int64
	Job   int64
	Types []string // SlotRegistered: the types of the slot; JobSubmitted: the type of the job
}

// Findings counts the placements and the violations of a run.
type Findings struct {
	Placements         int `json:"placements"`          // placements that were checked
	Misplaced          int `json:"misplaced"`           // placements on a slot although a compatible slot with fewer types was free
	AffinityViolations int `json:"affinity_violations"` // placements on a slot that does not support the type of the job
	DoublePlacements   int `json:"double_placements"`   // placements of a job that was on a slot, or on a slot that was busy or draining
	Lost               int `json:"lost"`                // jobs that were submitted and have not ended
}

// Clean reports whether nothing was found.
func (f Findings) Clean() bool {
	return f.Misplaced == 0 && f.AffinityViolations == 0 && f.DoublePlacements == 0 && f.Lost == 0
}

// Auditor checks a run from the facts alone. For each placement it examines
// every slot. It uses neither classes nor indexes, so that it does not share
// a defect with the code that it checks. Only one goroutine at a time may use
// it.
type Auditor struct {
	slots    map[int64]*auditedSlot
	waiting  map[int64]string // jobs that were submitted and have not ended → type
	places   map[int64]int64  // job → slot it is on
	findings Findings
	examples []string
}

type auditedSlot struct {
	types    map[string]bool
	draining bool
	jobs     int // jobs on it; more than one is a finding
}

// maxExamples bounds the examples that an Auditor keeps.
const maxExamples = 20

// NewAuditor returns an Auditor without facts.
func NewAuditor() *Auditor {
	return &Auditor{slots: map[int64]*auditedSlot{}, waiting: map[int64]string{}, places: map[int64]int64{}}
}

// Observe processes the next fact.
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

// free removes a job from its slot. It ignores a late release: the job is no
// longer on the slot.
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

// Findings returns the counts so far. Lost is meaningful only at the end of a
// run, when every job should have ended.
func (a *Auditor) Findings() Findings {
	f := a.findings
	f.Lost = len(a.waiting)
	return f
}

// Examples describes the first findings, at most twenty.
func (a *Auditor) Examples() []string { return a.examples }
