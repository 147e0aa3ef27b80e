package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/slotindex"
)

// The cost of removing a slot grows with the number of its types. So a slot is
// first retired, in constant time: from then on it gets no job. Retired slots are
// removed after the event, as long as the work of the step is below stepWork. The
// others follow in the next steps. Until then they still count as capacity.

// stepWork is the work after which a step removes no further slot and starts no
// further placement. The unit is a step of the index, which takes 10 to 100 ns.
const stepWork = 20_000

// worked returns the work of the current step.
func (c *Core) worked() int { return c.index.Work() - c.workBefore + c.work }

// exhausted reports whether the rest of the work must wait for the next step.
func (c *Core) exhausted() bool { return c.worked() >= stepWork }

// retire takes a slot out of service. The slot is removed later, when it has no job.
func (c *Core) retire(ref slotindex.Ref) {
	c.index.Retire(ref)
	if s := c.slots[ref]; !s.retired {
		s.retired = true
		c.retired = append(c.retired, ref)
	}
}

// sweep removes retired slots. A slot that still has a job no longer counts as
// capacity afterwards; it is retired again when the job ends.
func (c *Core) sweep() {
	for len(c.retired) > 0 && !c.exhausted() {
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
}

// removeSlot forgets a slot that holds no job.
func (c *Core) removeSlot(ref slotindex.Ref) {
	c.slots[ref].session.forgetSlot(ref, c.slots[ref].at)
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
