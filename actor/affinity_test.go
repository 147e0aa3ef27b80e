package actor

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
)

// auditor records slots and jobs from events and effects alone, independently
// of the core, and checks every placement.
type auditor struct {
	t        *testing.T
	slots    []auditSlot // of open sessions, by id
	types    map[dispatcherd.JobID]string
	reserved map[dispatcherd.JobID]dispatcherd.SlotID
	fresh    []placement // placements of the last step
	placed   int
	alone    int // steps with exactly one placement
	idle     int // other compatible slots that were free at a placement
}

type auditSlot struct {
	id       dispatcherd.SlotID
	session  dispatcherd.SessionID
	number   int32
	types    []string
	draining bool
	holder   dispatcherd.JobID // job for which it is reserved or which it runs; 0 = free
}

func newAuditor(t *testing.T) *auditor {
	return &auditor{
		t: t, types: map[dispatcherd.JobID]string{},
		reserved: map[dispatcherd.JobID]dispatcherd.SlotID{},
	}
}

// hold ends the test if a condition is false. It is called so often that
// require would take most of the time of the test.
func (a *auditor) hold(ok bool, format string, args ...any) {
	if !ok {
		a.t.Fatalf(format, args...)
	}
}

func (a *auditor) slot(id dispatcherd.SlotID) *auditSlot {
	i := slices.IndexFunc(a.slots, func(s auditSlot) bool { return s.id == id })
	a.hold(i >= 0, "slot %d does not exist", id)
	return &a.slots[i]
}

func (a *auditor) gone(s dispatcherd.SessionID) {
	a.slots = slices.DeleteFunc(a.slots, func(slot auditSlot) bool {
		if slot.session == s {
			delete(a.reserved, slot.holder)
		}
		return slot.session == s
	})
}

// chosen records a decision: a request that was sent or a reservation.
func (a *auditor) chosen(job dispatcherd.JobID, slot dispatcherd.SlotID) {
	s := a.slot(slot)
	a.hold(s.holder == 0, "slot %d is taken by %d", slot, s.holder)
	s.holder = job
	a.fresh = append(a.fresh, placement{job, slot})
}

// reserve records the slot that is reserved for a row. With noSlotID it ends
// the reservation.
func (a *auditor) reserve(job dispatcherd.JobID, slot dispatcherd.SlotID) {
	at, known := a.reserved[job]
	if known && at == slot {
		return
	}
	if known {
		a.released(at)
		delete(a.reserved, job)
	}
	if slot != noSlotID {
		a.reserved[job] = slot
		a.chosen(job, slot)
	}
}

const noSlotID = dispatcherd.SlotID(-1)

func (a *auditor) released(slot dispatcherd.SlotID) { a.slot(slot).holder = 0 }

// sent checks a job that is sent to a worker.
func (a *auditor) sent(e *effect.Send) {
	s := a.slot(e.Slot)
	a.hold(s.session == e.Session && s.number == e.Number, "%+v is not %d of session %d", s, e.Number, e.Session)
	a.hold(a.types[e.Job] == e.Type, "job %d has type %q, was sent as %q", e.Job, a.types[e.Job], e.Type)
	a.hold(slices.Contains(s.types, e.Type), "affinity violation: %v does not support %q", s, e.Type)
	if at, ok := a.reserved[e.Job]; ok {
		a.hold(at == e.Slot, "job %d was reserved slot %d and sent to %d", e.Job, at, e.Slot)
		delete(a.reserved, e.Job)
	} else {
		a.chosen(e.Job, e.Slot) // a request, or a row whose claim had an unknown outcome
	}
}

// judge checks every placement of a step: no slot that is still free would have
// been a better choice.
func (a *auditor) judge() {
	if len(a.fresh) == 1 {
		a.alone++
	}
	for _, p := range a.fresh {
		a.placed++
		got, typ := a.slot(p.slot), a.types[p.job]
		a.hold(slices.Contains(got.types, typ), "affinity violation: %v does not support %q", got, typ)
		for i := range a.slots {
			s := &a.slots[i]
			if s.draining || s.holder != 0 || !slices.Contains(s.types, typ) {
				continue
			}
			a.idle++
			better := len(s.types) < len(got.types) || len(s.types) == len(got.types) && s.id < got.id
			a.hold(!better, "job of type %s went to %v, but %v was free", typ, got, s)
		}
	}
	a.fresh = a.fresh[:0]
}

// Workers connect, disconnect, reconnect, withdraw slots and die at any moment.
// Claims are lost, refused or have an unknown outcome.
func TestJobsRunOnSlotsThatSupportTheirType(t *testing.T) {
	placements := 1_000_000
	if raceEnabled {
		placements = 6_000
	} else if testing.Short() {
		placements = 30_000
	}
	const lives = 4
	for life := range uint64(lives) {
		t.Run(string(rune('a'+life)), func(t *testing.T) {
			t.Parallel()
			audit := newAuditor(t)
			w := newRandomWalk(life, audit)
			for audit.placed < placements/lives {
				w.turn()
			}
			require.Greater(t, audit.alone, audit.placed/2, "most steps must have exactly one placement")
			require.Greater(t, audit.idle, audit.placed/2, "some placements must have had alternatives")
			require.NoError(t, w.core.Check())
			require.Greater(t, w.deaths, placements/lives/1000)
			require.Positive(t, w.adopted)
			require.Positive(t, w.handovers)
		})
	}
}
