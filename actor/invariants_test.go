package actor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Check compares all redundant data of the Core: slots with jobs, counters with
// what they count, queues with their marks. The tests of slotindex and backlog check
// those packages.
func (c *Core) Check() error {
	for _, check := range []func() error{c.checkSlots, c.checkJobs, c.checkRequests, c.checkPinned, c.checkAlarms} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Core) checkSlots() error {
	slots, types := map[string]int{}, map[string]int{}
	known := c.slotRefs()
	if len(known) != c.index.Len() {
		return fmt.Errorf("%d slots belong to sessions, %d are registered", len(known), c.index.Len())
	}
	for _, ref := range known {
		s := c.slots[ref]
		id := c.index.SlotID(ref)
		switch {
		case c.sessions[s.session.id] == s.session && s.session.slots[s.at] != ref:
			return fmt.Errorf("slot %d is not at %d in the list of its session", id, s.at)
		case s.held && !c.index.IsDraining(ref):
			return fmt.Errorf("slot %d is drained by an operator, but takes jobs", id)
		case s.offered != nil && len(s.offered) <= len(c.index.TypesOf(ref)):
			return fmt.Errorf("slot %d serves more types than its worker offers", id)
		case s.job == nil && !c.index.IsFree(ref) && !c.index.IsDraining(ref):
			return fmt.Errorf("slot %d is taken but holds no job", id)
		case s.job != nil && c.index.IsFree(ref):
			return fmt.Errorf("slot %d is free but holds job %d", id, s.job.id)
		case s.job != nil && s.job.slot != ref:
			return fmt.Errorf("slot %d holds job %d, which does not know it", id, s.job.id)
		case s.job != nil && !c.index.Supports(ref, s.job.Type) && !contract.MayResume(nil, c.index.Name(s.job.Type)):
			return fmt.Errorf("slot %d holds job %d of type %q, which it does not support", id, s.job.id, c.index.Name(s.job.Type))
		}
		types[s.session.user] += len(c.index.TypesOf(ref))
		if slots[s.session.user]++; s.retired {
			slots[s.session.user]--
		}
	}
	return cmp.Or(sameCount("slots", slots, c.quotas.Slots), sameCount("types of slots", types, c.quotas.SlotTypes))
}

// slotRefs returns the slots of all sessions, ordered by SlotID.
func (c *Core) slotRefs() (refs []slotindex.Ref) {
	for ref := range slotindex.Ref(len(c.slots)) {
		if c.slots[ref].session != nil {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b slotindex.Ref) int { return cmp.Compare(c.index.SlotID(a), c.index.SlotID(b)) })
	return refs
}

// holdsSlot reports whether a slot is reserved for a job in a state, or executes it.
func holdsSlot(s jobState) bool {
	return s.reservesSlot() || s.executing() && !s.isDetached()
}

// sameCount compares a quota with what its users hold.
func sameCount(what string, held map[string]int, q *quota.Quota) error {
	total := 0
	for user, n := range held { // order-free: any difference is an error
		if total += n; q.Of(user) != n {
			return fmt.Errorf("user %q has %d %s, counted %d", user, n, what, q.Of(user))
		}
	}
	if total != q.Held() {
		return fmt.Errorf("users have %d %s, counted %d", total, what, q.Held())
	}
	return nil
}

func (c *Core) checkJobs() error {
	perKind := make([]int32, len(c.types))
	waiters, logs, reserved := map[string]int{}, map[string]int{}, 0
	for _, f := range c.claims.inFlight {
		for _, j := range f.jobs {
			if !j.claimInFlight() || c.jobs[j.id] != j {
				return fmt.Errorf("a claim is in flight for job %d, which is %v", j.id, j.state)
			}
		}
	}
	if err := c.checkOrders(); err != nil {
		return err
	}
	for id, j := range c.jobs {
		perKind[j.Type]++
		holds := j.slot != noSlot
		switch {
		case j.id != id:
			return fmt.Errorf("job %d is in hand as job %d", j.id, id)
		case holds && c.slots[j.slot].job != j:
			return fmt.Errorf("job %d has a slot that holds another job", j.id)
		case holds != holdsSlot(j.state):
			return fmt.Errorf("job %d is %v, and has slot %d", j.id, j.state, j.slot)
		case j.state.isDetached() && j.alarm == 0:
			return fmt.Errorf("job %d is detached without a deadline", j.id)
		case (j.mode == dispatcherd.OnDemand) != (j.state <= stateAbandoned):
			return fmt.Errorf("job %d has mode %v and is %v", j.id, j.mode, j.state)
		}
		if j.state == stateWaiting {
			waiters[j.request.user]++
		}
		logs[j.row.logUser] += len(j.row.log)
		if j.state.reservesSlot() {
			reserved++
		}
	}
	if reserved != c.reserved {
		return fmt.Errorf("%d slots are reserved, counted %d", reserved, c.reserved)
	}
	types := map[string]int{}
	for _, k := range c.types {
		if k.known {
			types[k.user]++
		}
	}
	spawns := map[string]int{}
	for _, r := range c.spawns.open {
		spawns[r.User]++
	}
	offers := map[string]int{}
	for _, s := range c.sessions {
		offers[s.user] += s.undecided
	}
	if err := cmp.Or(sameCount("waiting requests", waiters, c.quotas.Requests), sameCount("types", types, c.quotas.Types),
		sameCount("spawns", spawns, c.quotas.Spawns), sameCount("offers", offers, c.quotas.Offers),
		sameCount("bytes of logs", logs, c.quotas.Logs)); err != nil {
		return err
	}
	for t, n := range perKind {
		if have := c.types[t].inHand; have != n {
			return fmt.Errorf("type %d has %d jobs in hand, counted %d", t, n, have)
		}
	}
	return nil
}

func (c *Core) checkRequests() error {
	for _, t := range c.dirty {
		if !c.isDirty.Has(t) {
			return fmt.Errorf("type %d is in the list of dirty types, but not in the map", t)
		}
	}
	for t := range c.types {
		k := c.types[t]
		if !k.known {
			continue
		}
		if c.requesting.Has(slotindex.TypeID(t)) != (len(k.startable()) > 0) {
			return fmt.Errorf("type %d is not marked according to its requests", t)
		}
		for _, q := range k.demand {
			if int(q.lane.Type) != t {
				return fmt.Errorf("type %d has a queue of type %d", t, q.lane.Type)
			}
			if err := q.check(); err != nil {
				return fmt.Errorf("request queue %d/%d %w", t, q.lane.Priority, err)
			}
		}
		if err := c.checkDirty(slotindex.TypeID(t)); err != nil {
			return err
		}
	}
	return nil
}

func (q *requestQueue) check() error {
	if len(q.requests) == 0 {
		return errors.New("is empty")
	}
	for i, j := range q.requests {
		if q.through(j.request.requestPlace) != i+1 || i > 0 && j.request.arrival < q.requests[i-1].request.arrival {
			return fmt.Errorf("is out of order at %d", j.id)
		}
	}
	return nil
}

// checkDirty returns an error if a type has a waiting job and a free slot, but the
// next step does not examine the type.
func (c *Core) checkDirty(t slotindex.TypeID) error {
	if c.waits(t) && c.index.HasFree(t) && !c.isDirty.Has(t) {
		return fmt.Errorf("type %q has a waiting job and a free slot, and is not dirty", c.index.Name(t))
	}
	return nil
}

func (c *Core) checkAlarms() error {
	for i, j := range c.alarms {
		if int(j.alarm) != i+1 {
			return fmt.Errorf("job %d does not know its alarm", j.id)
		}
		if (byDeadline{}).Before(j, c.alarms[max(0, i-1)/2]) {
			return fmt.Errorf("alarms are out of order at %d", i)
		}
	}
	return nil
}

// checkPinned compares the queues of pinned requests with their counts and marks.
func (c *Core) checkPinned() error {
	pinned := make([]int32, len(c.types))
	for id, s := range c.sessions { // order-free: any difference is an error
		for _, q := range s.pinned {
			pinned[q.lane.Type] += int32(len(q.requests))
			if err := q.check(); err != nil {
				return fmt.Errorf("a queue of pinned requests of session %d %w", id, err)
			}
			if _, free := c.freeSlotOf(s, q.lane.Type); free && !s.pinsDirty && !c.types[q.lane.Type].pause.requests() {
				return fmt.Errorf("session %d has a pinned request and a free slot, and is not dirty", id)
			}
			if !c.offers(s, q.lane.Type) && !s.pinsCheck {
				return fmt.Errorf("session %d has a pinned request and no slot for it", id)
			}
		}
	}
	for _, s := range c.pins.check { // of sessions that have ended
		for _, q := range s.pinned {
			if c.sessions[s.id] != s {
				pinned[q.lane.Type] += int32(len(q.requests))
			}
		}
	}
	for t, n := range pinned {
		if have := c.types[t].pinned; have != n {
			return fmt.Errorf("type %d has %d pinned requests, counted %d", t, n, have)
		}
	}
	return nil
}
