package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/slotindex"
)

// The cost of removing a slot grows with the number of its types. So a slot is
// first retired, in constant time: from then on it gets no job. sweep removes
// retired slots and handles the jobs of ended sessions, as long as the work of the
// step is below Limits.StepWork. The rest follows in the next steps, one
// millisecond apart. Until then retired slots still count as capacity.

// jobWork is the work for one job, relative to the work for one type of a slot.
const jobWork = 10

// lostJob is a job on a slot whose session has ended.
type lostJob struct {
	slot      slotindex.Ref
	end       *sessionEnd
	withdrawn bool // the worker had withdrawn the slot before
}

// worked returns the work of the current step. The work does not depend on a clock.
func (c *Core) worked() int { return c.index.Work() - c.workBefore + c.work }

// budget returns the value of worked at which a part of the current step must end.
// Each part of a step has its own budget, so no part can starve another one.
func (c *Core) budget() int { return c.worked() + c.cfg.Limits.StepWork }

// retire takes a slot out of service. The slot is removed later, when it has no job.
func (c *Core) retire(ref slotindex.Ref) {
	c.index.Retire(ref)
	if s := c.slots[ref]; !s.retired {
		s.retired = true
		c.retired = append(c.retired, ref)
	}
}

// sweep handles jobs whose session has ended, and then removes retired slots. A
// retired slot that still has a job no longer counts as capacity afterwards; it is
// retired again when the job ends.
func (c *Core) sweep() {
	before := c.worked()
	until := before + c.sweepLeft
	for len(c.lost) > 0 && c.worked() < until {
		l := c.lost[0]
		c.lost = c.lost[1:]
		c.work += jobWork
		if s := c.slots[l.slot]; s.job != nil { // otherwise the job has ended or was resumed on another connection
			j := s.job
			j.slot, s.job = noSlot, nil
			c.workerLost(j, l.end, l.withdrawn)
		}
	}
	if len(c.lost) == 0 {
		c.lost = nil
	}
	for len(c.retired) > 0 && len(c.lost) == 0 && c.worked() < until {
		last := len(c.retired) - 1
		ref := c.retired[last]
		c.retired = c.retired[:last]
		c.slots[ref].retired = false
		if c.slots[ref].job == nil {
			c.removeSlot(ref)
			continue
		}
		c.index.Drain(ref)
		for _, t := range c.index.TypesOf(ref) {
			c.capacityLost(t)
		}
	}
	c.sweepLeft -= c.worked() - before
}

// hasWorkLeft reports whether a part of the work waits for the next step.
func (c *Core) hasWorkLeft() bool {
	return len(c.lost) > 0 || len(c.retired) > 0 || c.unfinished || c.restated < c.restateTo
}

// removeSlot forgets a slot that holds no job.
func (c *Core) removeSlot(ref slotindex.Ref) {
	c.slots[ref].session.forgetSlot(ref, c.slots[ref].at)
	c.slotTypes -= len(c.index.TypesOf(ref))
	c.removed = append(c.removed[:0], c.index.TypesOf(ref)...)
	*c.slots[ref] = slot{}
	c.index.Remove(ref)
	for _, t := range c.removed {
		c.capacityLost(t)
	}
}

// capacityLost updates the state of a type that has lost a slot.
func (c *Core) capacityLost(t slotindex.TypeID) {
	if c.index.Capacity(t) == 0 {
		c.watchAll(t)
	}
	c.letGo(t)
}

// addSlot adds a slot at the end of the list and returns its position.
func (s *session) addSlot(ref slotindex.Ref) int32 {
	s.slots = append(s.slots, ref)
	return int32(len(s.slots) - 1)
}

// forgetSlot removes the slot at a position of the list. The other slots keep their
// positions until compactSlots.
func (s *session) forgetSlot(ref slotindex.Ref, at int32) {
	if int(at) < len(s.slots) && s.slots[at] == ref {
		s.slots[at] = noSlot
		s.removed++
	}
}

// slotsOf returns a copy of the list of the slots of a session, in order of
// registration.
func (c *Core) slotsOf(s *session) []slotindex.Ref {
	c.compactSlots(s)
	return slices.Clone(s.slots)
}

// compactSlots drops the removed slots from the list of a session.
func (c *Core) compactSlots(s *session) {
	if s.removed == 0 {
		return
	}
	s.removed = 0
	s.slots = slices.DeleteFunc(s.slots, func(ref slotindex.Ref) bool { return ref == noSlot })
	for i, ref := range s.slots {
		c.slots[ref].at = int32(i)
	}
}
