package actor

import (
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A job is detached when its session ends for a reason outside the job while its
// worker is alive. The reasons are: another job of the session ignored a cancel;
// the worker registered too many slots; the session ended while its resume offers
// were undecided. A detached job continues without a slot until the worker resumes
// it on its next connection. Resuming needs no statement, because the row already
// belongs to this dispatcher. A job that is not resumed within Config.Resume is
// released.

// detachAll detaches the jobs of a session, except for one job, and removes the
// slots. Requests are not detached: their callers wait, so another worker executes
// them. The first worker may continue such a request for a moment. Its reports are
// then stale. When it reconnects, the dispatcher does not accept its resume offer.
func (c *Core) detachAll(s *session, except *job) {
	if c.cfg.Resume <= 0 || s.notResumable {
		return
	}
	for _, ref := range s.slots {
		j := c.slots[ref].job
		if j == nil || j == except || j.fingerprint == 0 || j.stop == leaseLost || j.state != stateRunning && j.state != stateStopping {
			continue
		}
		c.retire(c.vacate(j))
		c.detach(j)
	}
}

// detach makes a job without a slot wait for its worker. If the dispatcher is
// handing over its running jobs, detach leaves the job to the next dispatcher.
func (c *Core) detach(j *job) {
	if c.leaving {
		c.leave(j)
		return
	}
	c.stats.Detached++
	c.move(j, onDetach)
}

// notResumed ends a detached job whose worker did not resume the job in time.
func (c *Core) notResumed(j *job) {
	if j.state == stateDetachedStopping {
		c.end(
			j,
			c.outcome(j, &Result{Error: "the job was told to stop, its worker was disconnected, and the worker did not resume the job"}),
		)
		return
	}
	c.stats.Released++
	c.end(j, contract.Finish{Outcome: contract.Released})
}

// leave forgets a job and leaves its row unchanged, so that the worker can offer
// the job to the next dispatcher.
func (c *Core) leave(j *job) {
	c.stats.Left++
	c.move(j, onLeave)
}

// disconnectRejected disconnects the sessions that were rejected in this step. It
// must run before placements. Otherwise a job could be sent to such a session, and
// the end of the session would count as a crash.
func (c *Core) disconnectRejected() {
	for i := 0; i < len(c.rejected); i++ { // the end of a session may cause further rejections
		if s := c.sessions[c.rejected[i]]; s != nil {
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
