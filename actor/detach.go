package actor

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/actor/jobstate"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A job is detached when its session was ended for a reason outside the job and its
// worker is alive: another job of the session ignored a cancel, the worker
// registered too many slots, or the session ended while its resume offers were
// undecided. The job continues without a slot until the worker resumes it on its
// next connection. This needs no statement, because the row already belongs to this
// dispatcher. A job that is not resumed within Config.Resume is released.

// detachAll detaches the jobs of a session, except for one job, and removes the
// slots. Requests are not detached: their callers wait, so another worker executes
// them. The first worker may continue for a moment, and learns on its next
// connection that the execution is over; its reports are stale.
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

// detach makes a job without a slot wait for its worker. If this dispatcher stops,
// it leaves the job to the next one.
func (c *Core) detach(j *job) {
	if c.leaving {
		c.leave(j)
		return
	}
	c.stats.Detached++
	c.move(j, jobstate.OnDetach)
}

// notResumed ends a detached job that its worker did not resume in time.
func (c *Core) notResumed(j *job) {
	if j.state == jobstate.DetachedStopping {
		c.end(j, c.outcome(j, &event.Result{Error: "it was told to stop, its worker was disconnected, and did not resume it"}))
		return
	}
	c.stats.Released++
	c.end(j, contract.Finish{Outcome: contract.Released})
}

// leave forgets a job and leaves its row unchanged, so that its worker can resume
// it at the next dispatcher.
func (c *Core) leave(j *job) {
	c.stats.Left++
	c.move(j, jobstate.OnLeave)
}

// rejectSession sends a session the reason for which it must end although its
// worker is alive. The caller may be iterating over slots and jobs, so the session
// is disconnected at the end of the event.
func (c *Core) rejectSession(s *session, notice effect.Effect) {
	c.emit(notice)
	c.rejected = append(c.rejected, s.id)
}

// disconnectRejected disconnects the sessions that were rejected in this step. It
// must run before placements: otherwise a job could be sent to such a session, and
// the end of the session would count as a crash.
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
// registers later are ignored.
func (c *Core) disconnect(s *session) {
	c.endSession(s, true)
	c.disconnected[s.id] = struct{}{}
}
