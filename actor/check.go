package actor

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Check compares everything Core holds twice: slots against jobs, counters
// against what they count, lanes against their marks. It costs a look at all
// state, so it runs in tests and in race builds only.
func (c *Core) Check() error {
	if err := c.index.Check(); err != nil {
		return err
	}
	for _, check := range []func() error{c.checkSlots, c.checkJobs, c.checkLanes, c.checkAlarms} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Core) checkSlots() error {
	for _, ref := range c.index.Slots() {
		s := &c.slots[ref]
		id := c.index.SlotID(ref)
		switch {
		case s.session == nil:
			return fmt.Errorf("slot %d belongs to no session", id)
		case s.job == nil && !c.index.IsFree(ref) && !c.index.IsDraining(ref):
			return fmt.Errorf("slot %d is taken but holds no job", id)
		case s.job != nil && c.index.IsFree(ref):
			return fmt.Errorf("slot %d is free but holds job %d", id, s.job.id)
		case s.job != nil && s.job.slot != ref:
			return fmt.Errorf("slot %d holds job %d, which does not know it", id, s.job.id)
		case s.job != nil && !c.index.Supports(ref, s.job.typ):
			return fmt.Errorf("slot %d holds job %d of type %q, which it does not support", id, s.job.id, c.index.Name(s.job.typ))
		}
	}
	return nil
}

func (c *Core) checkJobs() error {
	perKind := make([]int32, len(c.kinds))
	waiters := 0
	for i := range c.claims.flying {
		for _, j := range c.claims.flying[i].jobs {
			if j.stage != reserved || c.jobs.get(j.id) != j {
				return fmt.Errorf("a claim is under way for job %d, which is not reserved any more", j.id)
			}
		}
	}
	for _, j := range c.inHand() {
		perKind[j.typ]++
		holds := j.slot != noSlot
		switch {
		case holds && c.slots[j.slot].job != j:
			return fmt.Errorf("job %d believes to hold a slot that holds another", j.id)
		case j.stage == running && !holds && j.alarm == 0:
			return fmt.Errorf("job %d runs without a slot, and nobody waits for its worker", j.id)
		case (j.stage == waiting || j.stage == ended) && holds:
			return fmt.Errorf("job %d keeps a slot in stage %d", j.id, j.stage)
		case j.id.OnDemand() != (j.mode == dispatcherd.OnDemand):
			return fmt.Errorf("job %d has mode %v", j.id, j.mode)
		}
		if j.stage == waiting {
			waiters++
		}
	}
	if waiters != c.requests {
		return fmt.Errorf("%d requests wait, counted %d", waiters, c.requests)
	}
	for t, n := range perKind {
		if c.kinds[t].jobs != n {
			return fmt.Errorf("type %d has %d jobs in hand, counted %d", t, n, c.kinds[t].jobs)
		}
	}
	return nil
}

func (c *Core) checkLanes() error {
	cached := 0
	for t := range c.kinds {
		k := &c.kinds[t]
		if !k.held {
			continue
		}
		for p := range k.queued {
			for _, l := range k.lanes(dispatcherd.Priority(p)) {
				cached += l.len()
				for i := l.head + 1; i < len(l.keys); i++ {
					if !l.keys[i-1].Less(l.keys[i]) {
						return fmt.Errorf("lane %d/%d is out of order at %d", t, p, i)
					}
				}
			}
			l := &k.queued[p]
			waits := k.waiting&(1<<p) != 0
			if waits != (l.len() > 0 || l.starved()) {
				return fmt.Errorf("lane %d/%d is marked %t with %d candidates", t, p, waits, l.len())
			}
			if waits := k.waiting&(1<<(foreignBit+p)) != 0; waits != (k.foreign != nil && k.foreign[p].len() > 0) {
				return fmt.Errorf("foreign lane %d/%d is marked %t", t, p, waits)
			}
			if waits := k.waiting&(1<<(demandBit+p)) != 0; waits != (k.demand[p].first != nil) {
				return fmt.Errorf("line %d/%d is marked %t", t, p, waits)
			}
			for j := k.demand[p].first; j != nil && j.next != nil; j = j.next {
				if !j.cameBefore(j.next) || j.next.prev != j {
					return fmt.Errorf("line %d/%d is out of order at %d", t, p, j.id)
				}
			}
		}
		if err := c.checkRest(slotindex.TypeID(t)); err != nil {
			return err
		}
	}
	if cached != c.cached {
		return fmt.Errorf("%d candidates are cached, counted %d", cached, c.cached)
	}
	return nil
}

// checkRest holds between steps: a type with a waiting job and a free slot is
// dirty, so that the next step looks at it.
func (c *Core) checkRest(t slotindex.TypeID) error {
	k := &c.kinds[t]
	if k.waiting != 0 && c.index.HasFree(t) && !k.dirty {
		return fmt.Errorf("type %q has a waiting job and a free slot, and nobody looks", c.index.Name(t))
	}
	return nil
}

func (c *Core) checkAlarms() error {
	for i, j := range c.alarms {
		if j.alarm != i+1 {
			return fmt.Errorf("job %d does not know its alarm", j.id)
		}
		if i > 0 && c.alarms.less(i, (i-1)/2) {
			return fmt.Errorf("alarms are out of order at %d", i)
		}
	}
	return nil
}
