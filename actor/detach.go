package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/actor/jobstate"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A job is detached when its session was ended for no fault of the job and its
// worker is alive: another job of the session ignored a cancel, the worker
// registered more slots than there is room for, or the session ended while its
// resume offers were undecided. The job runs on without a slot until the worker
// resumes it on its next connection. That takes no statement, since the row is
// this dispatcher's already. A job that is not resumed within Config.Resume is
// released.

// detachAll detaches what a session runs, except for one job, and removes the
// slots. Requests are not detached: a caller waits, and another worker serves it
// soonest. Its first worker may continue for a moment, and learns on its next
// connection that it is over; its reports are stale.
func (c *Core) detachAll(s *session, except *job) {
	if c.cfg.Resume <= 0 || s.notResumable {
		return
	}
	for _, ref := range slices.Clone(s.slots) {
		j := c.slots[ref].job
		if j == nil || j == except || j.fingerprint == 0 || j.stop == leaseLost || j.state != jobstate.Running && j.state != jobstate.Stopping {
			continue
		}
		c.leaveSlot(j)
		c.detach(j)
	}
}

// detach makes a job that has no slot wait for its worker. A dispatcher that
// stops leaves it to the next one.
func (c *Core) detach(j *job) {
	if c.leaving {
		c.leave(j)
		return
	}
	c.stats.Detached++
	c.move(j, jobstate.OnDetach)
}

// notResumed ends a detached job whose worker did not come back in time.
func (c *Core) notResumed(j *job) {
	if j.state == jobstate.DetachedStopping {
		c.end(j, c.outcome(j, &event.Result{Error: "it was told to stop, its worker was disconnected, and did not resume it"}))
		return
	}
	c.stats.Released++
	c.end(j, contract.Finish{Outcome: contract.Released})
}

// leave forgets a job whose row stays as it is: its worker resumes it at the
// next dispatcher.
func (c *Core) leave(j *job) {
	c.stats.Left++
	c.move(j, jobstate.OnLeave)
}

// rejectSession tells a session why it must end though its worker is well. The
// caller may be iterating over slots and jobs, so the session is disconnected at
// the end of the event.
func (c *Core) rejectSession(s *session, notice effect.Effect) {
	c.emit(notice)
	c.rejected = append(c.rejected, s.id)
}

// disconnectRejected disconnects the sessions that were rejected in this step.
// Until their connections end they have slots, and a job that was sent there
// would count the end as the death of its worker.
func (c *Core) disconnectRejected() {
	for _, id := range c.rejected {
		if s := c.sessions[id]; s != nil {
			c.detachAll(s, nil)
			c.disconnect(s)
		}
	}
	c.rejected = c.rejected[:0]
}

// disconnect forgets a session that this dispatcher ends. Slots that its worker
// still registers on it are ignored.
func (c *Core) disconnect(s *session) {
	c.endSession(s, true)
	c.disconnected[s.id] = struct{}{}
}
