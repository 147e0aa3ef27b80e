package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A job is stranded when its session was ended for no fault of its own and its
// worker is alive: the session's other job ignored a cancel, its worker brought
// more slots than there is room for, or the session ended while it was being
// found out whose the job is. It runs on without a slot until the worker brings
// it along on its next connection, which costs no statement since the row is this
// dispatcher's already. When nobody does so within Config.Resume it is released,
// nobody's fault.

// strandAll strands what a session runs, except for one job, and takes its slots
// away. Requests are not stranded: a caller waits, and it is soonest done
// elsewhere. It may go on for a moment at its old worker, which learns at its
// return that it is over; what that one says of it is stale.
func (c *Core) strandAll(s *session, except *job) {
	for _, ref := range slices.Clone(s.slots) {
		j := c.slots[ref].job
		if j == nil || j == except || j.stage != running || j.mode == dispatcherd.OnDemand || j.revoked || j.mark == 0 || s.forgetful || c.cfg.Resume <= 0 {
			continue
		}
		c.leaveSlot(j)
		c.strand(j)
	}
}

// refuse tells a session that it must end though its worker is well. Whoever calls
// may be going through slots and jobs, so it is cut off at the end of the event.
func (c *Core) refuse(s *session, notice Effect) {
	c.emit(notice)
	c.turned = append(c.turned, s.id)
}

// cutRefused cuts off the sessions that were refused: until their connections have
// ended they have slots, and what went there would count the end as the death of
// its worker. What they run waits for the worker to come back, or is interrupted
// if it would not bring it along.
func (c *Core) cutRefused() {
	for _, id := range c.turned {
		if s := c.sessions[id]; s != nil {
			c.strandAll(s, nil)
			c.revokeAll(s, nil)
			c.sever(s)
		}
	}
	c.turned = c.turned[:0]
}

// revokeAll makes the end of what a session still runs nobody's fault, except for
// one job.
func (c *Core) revokeAll(s *session, except *job) {
	for _, ref := range s.slots {
		if j := c.slots[ref].job; j != nil && j != except && j.stage == running {
			j.revoked = true
		}
	}
}

// sever forgets a session that this dispatcher ends, and what its worker still
// announces on it.
func (c *Core) sever(s *session) {
	c.unregister(s)
	c.cutOff[s.id] = struct{}{}
}

// leaveSlot takes a running job off its slot, which is gone with it.
func (c *Core) leaveSlot(j *job) {
	ref := j.slot
	j.slot, c.slots[ref].job = noSlot, nil
	c.index.Drain(ref) // nothing more may go to it
	c.removeSlot(ref)
}

// strand sets the time within which a running job without a slot is to be
// brought along. A dispatcher that stops leaves it to the next one.
func (c *Core) strand(j *job) {
	if c.leaving {
		c.leaveBehind(j)
		return
	}
	c.stats.Stranded++
	if j.due = 0; j.alarm != 0 && !j.dying {
		j.due = j.deadline
	}
	j.dying = false
	c.arm(j, c.now.After(c.cfg.Resume))
}

// goOn gives a stranded job its timeout back.
func (c *Core) goOn(j *job) {
	c.disarm(j)
	if j.due != 0 {
		c.arm(j, j.due)
		j.due = 0
	}
}

// notPresented ends a stranded job that nobody has brought along in time.
func (c *Core) notPresented(j *job) {
	if j.cancel || j.late {
		c.end(j, c.verdict(j, &Result{Error: "it was told to stop, its worker was cut off, and did not bring it along again"}))
		return
	}
	c.stats.Freed++
	c.end(j, contract.Finish{Outcome: contract.Released})
}

// leaveBehind forgets a job whose row stays as it is: the worker brings it along
// to the next dispatcher.
func (c *Core) leaveBehind(j *job) {
	c.stats.Left++
	c.forget(j)
}
