package actor

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

func (ev Registered) apply(c *Core) {
	if _, ended := c.disconnected[ev.Session]; ended {
		return // if a job were sent to such a slot, the end of the connection would count as a crash
	}
	s := c.sessions[ev.Session]
	if s == nil {
		s = &session{id: ev.Session, worker: ev.Worker, process: ev.Process, user: ev.User}
		c.sessions[ev.Session] = s
	}
	if ev.Fingerprint != 0 {
		s.fingerprint, s.notResumable, s.remote, s.moves = ev.Fingerprint, ev.NotResumable, ev.Remote, ev.Moves
	}
	if reason := c.roomFor(s, ev.Slots, 0); reason != "" {
		c.rejectSession(s, &effect.RejectSlots{Session: s.id, Reason: reason})
		return
	}
	c.register(s, ev.Slots)
	decided := c.considerOffers(s, ev.Offers, ev.MoreOffers)
	if decided && (c.draining || c.sentAway && s.moves && !s.away) {
		c.goAway(s)
	}
}

func (ev Unregistered) apply(c *Core) {
	delete(c.disconnected, ev.Session)
	if s := c.sessions[ev.Session]; s != nil {
		c.endSession(s, false)
	}
}

// endSession forgets a session with all its slots. disconnected means that this
// dispatcher ends the session. In this case no crash is counted.
func (c *Core) endSession(s *session, disconnected bool) {
	delete(c.sessions, s.id)
	c.forgetOffers(s)
	refs := s.slots
	s.slots = nil
	end := &sessionEnd{session: s, disconnected: disconnected, suspects: c.suspects(refs)}
	for _, ref := range refs {
		j, withdrawn := c.slots[ref].job, c.slots[ref].left
		c.slots[ref].next = nil
		c.retire(ref)
		switch {
		case j == nil:
		case j.state.claimPending(): // at once, because the claim may be answered before sweep handles the job
			c.vacate(j)
			c.workerLost(j, end, withdrawn)
		default:
			c.lost = append(c.lost, lostJob{ref, end, withdrawn})
		}
	}
	c.sweep()
}

// rejectSession informs the worker why its session must end although the worker is
// alive. The caller of rejectSession may be iterating over slots and jobs, so the
// session is disconnected at the end of the event.
func (c *Core) rejectSession(s *session, notice effect.Effect) {
	c.emit(notice)
	c.rejected = append(c.rejected, s.id)
}

// register adds slots of a session.
func (c *Core) register(s *session, slots []dispatcherd.Slot) {
	withdrawn := c.withdrawnSlots(s)
	for _, d := range slots {
		if ref, busy := withdrawn[d.Number]; busy {
			c.slots[ref].next = &d
			continue
		}
		c.addSlot(s, d)
	}
}

// roomFor checks whether slots fit into the shares of a session's user. replaced is the
// number of old slots that the new ones replace. roomFor returns a message that names the
// bound that would be exceeded, or "". Either all slots are admitted or none.
func (c *Core) roomFor(s *session, slots []dispatcherd.Slot, replaced int) string {
	q := &c.quotas
	if n := len(slots) - replaced; !q.Slots.Fits(s.user, n) {
		return q.Slots.Objection(s.user, n, "slots")
	}
	types := 0
	for i := range slots {
		types += len(slots[i].Types)
	}
	if !q.SlotTypes.Fits(s.user, types) {
		return q.SlotTypes.Objection(s.user, types, "types added up over slots")
	}
	if q.Types.Fits(s.user, types) {
		return ""
	}
	unknown := map[string]bool{}
	for i := range slots {
		for _, name := range slots[i].Types {
			if _, ok := c.index.Lookup(name); !ok {
				unknown[name] = true
			}
		}
	}
	if n := len(unknown); n > 0 && !q.Types.Fits(s.user, n) {
		return q.Types.Objection(s.user, n, "types")
	}
	return ""
}

// withdrawnSlots returns the withdrawn slots that are still busy, by their numbers.
// Frames name slots by number. So a new slot with the number of such a slot is
// registered only when the old slot has become free.
func (c *Core) withdrawnSlots(s *session) map[int32]slotindex.Ref {
	c.work += len(s.slots)
	found := map[int32]slotindex.Ref{}
	for _, ref := range s.slots {
		if c.slots[ref].job != nil && c.index.IsDraining(ref) {
			found[c.slots[ref].number] = ref
		}
	}
	return found
}

// succeed registers the slot that waited for the number of a removed slot.
func (c *Core) succeed(s *session, next *dispatcherd.Slot) {
	if next == nil {
		return
	}
	if reason := c.roomFor(s, []dispatcherd.Slot{*next}, 0); reason != "" {
		c.rejectSession(s, &effect.RejectSlots{Session: s.id, Reason: reason})
		return
	}
	c.addSlot(s, *next)
}

// addSlot registers a free slot, with the types that are not drained.
func (c *Core) addSlot(s *session, d dispatcherd.Slot) {
	offered := d.Types
	served := c.served(s, offered)
	if len(served) > 0 {
		d.Types = served
	}
	ref := c.addTaken(s, d)
	if len(d.Types) < len(offered) {
		c.slots[ref].offered = offered
	}
	switch {
	case c.index.IsDraining(ref):
		c.removeSlot(ref)
	case len(served) == 0:
		c.suspend(ref)
	default:
		c.release(ref)
	}
}

// release makes a slot free.
func (c *Core) release(ref slotindex.Ref) {
	c.index.Release(ref)
	c.backlog.SlotFreed()
	c.touchWaiting(ref)
}

// touchWaiting marks the types of a slot for which jobs wait as dirty. It does not
// visit each type of the slot.
func (c *Core) touchWaiting(ref slotindex.Ref) {
	c.index.EachSupported(ref, c.requesting, c.isDirty, c.touch)
	c.index.EachSupported(ref, c.backlog.WaitingTypes(), c.isDirty, c.touch)
	c.touchPins(c.slots[ref].session)
}

// addTaken registers a slot that is not free.
func (c *Core) addTaken(s *session, d dispatcherd.Slot) slotindex.Ref {
	ref := c.index.AddTaken(d.ID, d.Types)
	for int(ref) >= len(c.slots) {
		c.slots = append(c.slots, new(slot))
	}
	*c.slots[ref] = slot{session: s, number: d.Number, at: int32(len(s.slots)), left: s.draining}
	s.slots = append(s.slots, ref)
	c.quotas.Slots.Add(s.user, 1)
	c.quotas.SlotTypes.Add(s.user, len(d.Types))
	c.offer(ref)
	if s.draining {
		c.index.Drain(ref)
	}
	return ref
}

// offer makes the types of a slot known that is capacity from now on.
func (c *Core) offer(ref slotindex.Ref) {
	for _, t := range c.index.TypesOf(ref) {
		c.know(t, c.index.Name(t), c.slots[ref].session.user)
		if c.index.Capacity(t) == 1 {
			c.backlog.CapacityAppeared(t)
			c.watchAll(t)
		}
	}
}

func (ev Withdrew) apply(c *Core) {
	s := c.sessions[ev.Session]
	if s == nil {
		return
	}
	s.goodbye = s.goodbye || ev.Goodbye
	c.withdraw(s, ev.Numbers)
}

// withdraw removes slots of a session; all of them, and those that come later, if no numbers are given.
func (c *Core) withdraw(s *session, named []int32) {
	s.draining = s.draining || len(named) == 0
	numbers := make(map[int32]struct{}, len(named))
	for _, n := range named {
		numbers[n] = struct{}{}
	}
	for _, ref := range s.slots {
		if _, named := numbers[c.slots[ref].number]; !named && len(numbers) > 0 {
			continue
		}
		c.slots[ref].next, c.slots[ref].left = nil, true
		c.retire(ref)
	}
}

// The cost of removing a slot grows with the number of its types. So a slot is
// first retired, in constant time: from then on it gets no job. sweep removes
// retired slots and handles the jobs of ended sessions, as long as the work of the
// step is below Limits.StepWork. The rest follows in the next steps, one
// millisecond apart. Until then retired slots still count as capacity.

// retire takes a slot out of service. The slot is removed later, when it has no job.
func (c *Core) retire(ref slotindex.Ref) {
	c.index.Retire(ref)
	s := c.slots[ref]
	if s.held = false; !s.retired {
		s.retired = true
		c.quotas.Slots.Add(s.session.user, -1)
		c.retired = append(c.retired, ref)
	}
	c.checkPins(c.slots[ref].session)
}

// sweep handles jobs whose session has ended, and then removes retired slots. It
// only drains a slot that still has a job, or that an operator has drained: the slot no longer
// counts as capacity. When the job ends, a slot that is not drained by an operator is retired again.
func (c *Core) sweep() {
	before := c.worked()
	until := before + c.sweepLeft
	for len(c.lost) > 0 && c.worked() < until {
		l := c.lost[0]
		c.lost = c.lost[1:]
		c.work += jobWork
		if j := c.slots[l.slot].job; j != nil {
			c.execute(j)
		}
		if j := c.slots[l.slot].job; j != nil { // otherwise the job has ended or was resumed on another connection
			c.vacate(j)
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
		s := c.slots[ref]
		s.retired = false
		c.quotas.Slots.Add(s.session.user, 1)
		if s.job == nil && !s.held {
			of, next := s.session, s.next
			c.removeSlot(ref)
			c.succeed(of, next)
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
	return len(c.lost) > 0 || len(c.retired) > 0 || c.unfinished || c.orders.left > 0 || len(c.untold) > 0 ||
		len(c.pins.check) > 0 ||
		c.restated < c.restateTo
}

// removeSlot forgets a slot that holds no job.
func (c *Core) removeSlot(ref slotindex.Ref) {
	s := c.slots[ref]
	if slots := s.session.slots; len(slots) > 0 { // otherwise the session has ended
		last := slots[len(slots)-1]
		slots[s.at], c.slots[last].at = last, s.at
		s.session.slots = slots[:len(slots)-1]
	}
	c.quotas.Slots.Add(s.session.user, -1)
	c.quotas.SlotTypes.Add(s.session.user, -len(c.index.TypesOf(ref)))
	types := c.index.TypesOf(ref)
	*s = slot{}
	c.index.Remove(ref)
	for _, t := range types {
		c.capacityLost(t)
	}
}

// capacityLost updates the state of a type that has lost a slot.
func (c *Core) capacityLost(t slotindex.TypeID) {
	if c.index.Capacity(t) == 0 {
		c.types[t].lostAt = c.now
		c.watchAll(t)
	}
	c.letGo(t)
}
