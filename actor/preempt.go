package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// A request may arrive while every compatible slot is taken. The request may then
// preempt a queued job with a lower score whose slot is only reserved. Such a
// slot runs nothing until Postgres has answered the claim. Without preemption, a
// large backlog would reserve every slot as soon as it is free. Each request
// would then wait until Postgres has synced its log for the claim, and afterwards
// until the job ends.
//
// A preempted job whose claim is not sent returns to its lane. If the claim is in
// flight and wins the row, the job is assigned another slot in the step of the
// answer. This slot is free, or the job preempts another job by the same rule. If
// there is no such slot, the row is released, and the attempt does not count as a
// failure.
//
// Preemption starves no job. Only a job with a higher score preempts. No job that
// arrives more than W later ever has a higher score. So a job that preempts would
// also have been placed first if both jobs had waited. A job preempts the same job
// at most once.
//
// A request searches for a reservation only when it is queued. A later search would
// find nothing, because afterwards only jobs that rank before the request get
// reservations.
//
// A request takes the slot that suits it best. This may not be the slot whose job
// has the lowest score, because finding that slot would require a visit of every
// reservation. So a job may be preempted while a job with a lower score keeps its
// slot. The preempted job is then the head of its lane, or assignClaimed finds a
// slot for it.

// preemptable finds the reservation that the job of a head may preempt. It prefers
// the slot with the fewest types, then a slot whose claim is not sent, then the
// latest reservation. If sent is true, claims in flight are included. preemptable
// visits at most the rows of the claims. It stops as soon as no compatible slot
// can have fewer types.
func (c *Core) preemptable(h *head, sent bool) *job {
	j := c.latestBelow(h, c.claims.next, nil)
	if !sent {
		return j
	}
	for _, f := range c.claims.inFlight {
		j = c.latestBelow(h, f.jobs, j)
	}
	return c.latestBelow(h, c.claims.loading, j)
}

// latestBelow searches for reserved jobs that rank after h and have a slot that h
// can use. It returns the one whose slot has the fewest types; among equals, the
// last one in jobs. If no such slot has fewer types than the slot of best, it
// returns best.
func (c *Core) latestBelow(h *head, jobs []*job, best *job) *job {
	least, fewest := c.index.Fewest(h.Type), 0
	if best != nil {
		fewest = len(c.index.TypesOf(best.slot))
	}
	for i := len(jobs) - 1; i >= 0 && (best == nil || fewest > least); i-- {
		c.work++
		j := jobs[i]
		if j.slot == noSlot || c.index.IsDraining(j.slot) || !c.index.Supports(j.slot, h.Type) {
			continue
		}
		n := len(c.index.TypesOf(j.slot))
		if best != nil && n >= fewest {
			continue
		}
		if other := c.headOf(j); h.before(&other) {
			best, fewest = j, n
		}
	}
	return best
}

// preempt takes the slot of a reserved job away from the job.
func (c *Core) preempt(j *job) slotindex.Ref {
	ref := c.vacate(j)
	c.stats.Preempted++
	if j.state == stateReserved {
		c.claims.preempted = true
		c.unreserve(j)
	} else {
		c.move(j, onPreempt)
	}
	return ref
}

// preemptFor starts the first request of a queue on a slot that was reserved for
// another job.
func (c *Core) preemptFor(h *head) bool {
	if h.mode != dispatcherd.OnDemand || h.pin() != nil || !c.types[h.Type].urgent {
		return false
	}
	j := c.preemptable(h, true)
	if j == nil {
		return false
	}
	preempted, n := c.headOf(j), len(c.decisions)
	c.startRequest(h, c.preempt(j))
	c.logRunnerUp(n, &preempted)
	return true
}

// assignClaimed assigns slots to the jobs that are claimed but unassigned. All jobs
// that rank before them are placed first. Then each claimed job gets a slot that is
// still free, or a slot that it preempts. Jobs without a slot are released.
// assignClaimed reports whether a job was preempted and may be placed on another
// slot.
//
// The row still records the session of the first slot, which the claim recorded.
// send updates the row.
func (c *Core) assignClaimed() (again bool) {
	done := 0
	for _, j := range c.claims.unassigned {
		if c.unfinished = done > 0 && c.worked() >= c.placeUntil; c.unfinished {
			break
		}
		done++
		if ref, ok := c.slotForClaimed(j); ok {
			c.assign(j, ref)
			c.move(j, onAssign)
			continue
		}
		c.move(j, onUnwanted)
	}
	c.claims.unassigned = slices.Delete(c.claims.unassigned, 0, done)
	return c.wasPreempted()
}

func (c *Core) slotForClaimed(j *job) (slotindex.Ref, bool) {
	if c.isUnwanted(j) {
		return noSlot, false
	}
	if ref, ok := c.index.Peek(j.Type); ok {
		c.index.Take(ref)
		return ref, true
	}
	h := c.headOf(j)
	lesser := c.preemptable(&h, false)
	if lesser == nil {
		return noSlot, false
	}
	return c.preempt(lesser), true
}

// wasPreempted reports whether a job has returned to its lane since the last call.
func (c *Core) wasPreempted() (again bool) {
	again, c.claims.preempted = c.claims.preempted, false
	return again
}
