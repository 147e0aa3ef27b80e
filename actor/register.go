package actor

import (
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

func (ev Registered) apply(c *Core) {
	if _, gone := c.cutOff[ev.Session]; gone {
		return // it was on its way; a job sent to such a slot would count the hang-up as the death of its worker
	}
	s := c.sessions[ev.Session]
	if s == nil {
		s = &session{id: ev.Session, worker: ev.Worker}
		c.sessions[ev.Session] = s
	}
	if ev.Mark != 0 {
		s.mark, s.forgetful = ev.Mark, ev.Forgetful
	}
	if reason := c.roomFor(ev.Slots, 0); reason != "" {
		c.refuse(s, &RejectSlots{Session: s.id, Reason: reason})
		return
	}
	leaving := c.leavingSlots(s)
	for _, d := range ev.Slots {
		if ref, taken := leaving[d.Number]; taken {
			c.slots[ref].next = &d
			continue
		}
		c.addSlot(s, d)
	}
	decided := c.present(s, ev.Running)
	if c.draining && decided {
		c.emit(&GoAway{Session: s.id})
	}
}

// roomFor says which limit keeps slots out that take the places of some others,
// or nothing. All come or none does.
func (c *Core) roomFor(slots []dispatcherd.Slot, replaced int) string {
	l := c.cfg.Limits
	if have := c.index.Len() - replaced; have+len(slots) > l.Slots {
		return fmt.Sprintf("%d slots are too many: the dispatcher has %d, its limit is %d", len(slots), have, l.Slots)
	}
	unknown := map[string]bool{}
	for i := range slots {
		for _, name := range slots[i].Types {
			if _, ok := c.index.Lookup(name); !ok {
				unknown[name] = true
			}
		}
	}
	if c.known+len(unknown) > l.Types {
		return fmt.Sprintf("%d new types are too many: the dispatcher knows %d, its limit is %d", len(unknown), c.known, l.Types)
	}
	return ""
}

// leavingSlots finds the slots that were taken off line and are still at work, by
// their numbers. Frames name slots by number, so a number that is announced
// anew is used again when that work has ended.
func (c *Core) leavingSlots(s *session) map[int32]slotindex.Ref {
	if !s.leaving {
		return nil
	}
	found := map[int32]slotindex.Ref{}
	for _, ref := range s.slots {
		if c.index.IsDraining(ref) {
			found[c.slots[ref].number] = ref
		}
	}
	s.leaving = len(found) > 0
	return found
}

// succeed registers the slot that waited for the number of one that is gone.
func (c *Core) succeed(s *session, next *dispatcherd.Slot) {
	if next == nil {
		return
	}
	if reason := c.roomFor([]dispatcherd.Slot{*next}, 0); reason != "" {
		c.refuse(s, &RejectSlots{Session: s.id, Reason: reason})
		return
	}
	c.addSlot(s, *next)
}

// addSlot registers a free slot.
func (c *Core) addSlot(s *session, d dispatcherd.Slot) {
	ref := c.addTaken(s, d)
	if c.index.IsDraining(ref) {
		c.removeSlot(ref)
		return
	}
	c.index.Release(ref)
	for _, t := range c.index.TypesOf(ref) {
		if c.waits(t) {
			c.touch(t)
		}
	}
}

// addTaken registers a slot that is not free.
func (c *Core) addTaken(s *session, d dispatcherd.Slot) slotindex.Ref {
	ref := c.index.AddTaken(d.ID, d.Types)
	for int(ref) >= len(c.slots) {
		c.slots = append(c.slots, slot{})
	}
	c.slots[ref] = slot{session: s, number: d.Number}
	s.slots = append(s.slots, ref)
	for _, name := range d.Types {
		t := c.hold(name)
		if c.index.Capacity(t) == 1 {
			c.backlog.CapacityAppeared(t)
			c.watchAll(t)
		}
	}
	if s.draining {
		c.index.Drain(ref)
	}
	return ref
}

// removeSlot forgets a slot that holds no job.
func (c *Core) removeSlot(ref slotindex.Ref) {
	s := c.slots[ref].session
	if i := slices.Index(s.slots, ref); i >= 0 {
		s.slots = slices.Delete(s.slots, i, i+1)
	}
	c.gone = append(c.gone[:0], c.index.TypesOf(ref)...)
	c.slots[ref] = slot{}
	c.index.Remove(ref)
	for _, t := range c.gone {
		c.lessOf(t)
		c.letGo(t)
	}
}

// lessOf notes that a type has one slot less.
func (c *Core) lessOf(t slotindex.TypeID) {
	if c.index.Capacity(t) == 0 {
		c.watchAll(t)
	}
}

func (ev Unregistered) apply(c *Core) {
	delete(c.cutOff, ev.Session)
	if s := c.sessions[ev.Session]; s != nil {
		c.unregister(s)
	}
}

// unregister forgets a session with all its slots.
func (c *Core) unregister(s *session) {
	delete(c.sessions, s.id)
	c.desert(s)
	refs := s.slots
	s.slots = nil
	suspects := c.suspects(refs)
	for _, ref := range refs {
		j, leaving := c.slots[ref].job, c.index.IsDraining(ref)
		c.slots[ref].job = nil
		c.removeSlot(ref)
		if j != nil {
			j.slot = noSlot
			c.bereave(s, j, leaving, suspects)
		}
	}
}

// suspects counts the jobs in slots of a dead worker that one more crash would
// quarantine. With more than one of them the death proves nothing against any.
func (c *Core) suspects(refs []slotindex.Ref) (n int) {
	for _, ref := range refs {
		if j := c.slots[ref].job; j != nil && j.stage == running && !j.cancel && !j.revoked && c.atTheBrink(j) {
			n++
		}
	}
	return n
}

// mostParted is how often a job gets the benefit of the doubt.
const mostParted = 10

func (c *Core) atTheBrink(j *job) bool { return int(j.crashes)+1 >= c.cfg.Limits.Crashes }

// bereave deals with a job whose slot died under it. A reserved job stays: the
// claim for it is under way or about to be, and what the claim wins without a
// slot is released. Its key returns to the lane by then. A worker that had
// announced its leaving did not crash.
func (c *Core) bereave(s *session, j *job, leaving bool, suspects int) {
	switch {
	case j.stage == reserved:
	case c.leaving && j.mode == dispatcherd.Queued && j.stage == running && !j.cancel && !j.revoked && !s.forgetful:
		c.leaveBehind(j)
	case j.mode == dispatcherd.OnDemand && (leaving || j.revoked) && !j.orphan && !c.draining:
		c.requeue(j)
	case j.mode == dispatcherd.OnDemand:
		c.bereaveRequest(j)
	case j.stage == running && !j.cancel && (leaving || j.revoked || c.leaving):
		c.stats.Freed++
		c.end(j, contract.Finish{Outcome: contract.Released})
	case j.stage == running:
		c.crashed(j, suspects)
	}
}

// crashed blames a job for the death of its worker. All jobs of the worker get
// the blame alike, and those that one more death would quarantine are only
// sentenced when they were the sole suspect: otherwise each comes back after a
// delay of its own, which grows, so that the next time they hardly run side by
// side. Where they do again and again, as jobs do that take longer to kill than
// any delay, the number of deaths is evidence enough in the end.
func (c *Core) crashed(j *job, suspects int) {
	c.stats.Crashed++
	switch {
	case j.cancel:
		c.end(j, contract.Finish{Outcome: contract.Cancelled})
	case !c.atTheBrink(j):
		c.end(j, contract.Finish{Outcome: contract.Crashed, Error: "the worker died while it ran the job"})
	case suspects > 1 && int(j.crashes)+1 < c.cfg.Limits.Crashes+mostParted:
		c.end(j, contract.Finish{
			Outcome: contract.Isolated, Delay: c.cfg.Retry.Delay(int(j.crashes), c.rng),
			Error: fmt.Sprintf("the worker died while it ran this job and %d more that are as suspect: it will run apart from them", suspects-1),
		})
	default:
		c.stats.Quarantine++
		c.end(j, contract.Finish{Outcome: contract.Quarantined, Error: fmt.Sprintf("quarantined: %d workers died while they ran it", j.crashes+1)})
	}
}

func (ev Withdrew) apply(c *Core) {
	s := c.sessions[ev.Session]
	if s == nil {
		return
	}
	if len(ev.Numbers) == 0 {
		s.draining = true
	}
	for _, ref := range slices.Clone(s.slots) {
		if len(ev.Numbers) > 0 && !slices.Contains(ev.Numbers, c.slots[ref].number) {
			continue
		}
		c.slots[ref].next = nil
		c.index.Drain(ref)
		if c.slots[ref].job == nil {
			c.removeSlot(ref)
			continue
		}
		s.leaving = true
		for _, t := range c.index.TypesOf(ref) {
			c.lessOf(t)
			c.letGo(t)
		}
	}
}
