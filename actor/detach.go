package actor

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A job is detached when its session ends for a reason outside the job while its
// worker is alive. The reasons are: another job of the session ignored a cancel;
// the worker registered too many slots; the session ended while its resume offers
// were undecided; the worker was told to go to another dispatcher. A detached job
// continues without a slot until the worker resumes it on its next connection.
// Resuming needs no statement, because the row already belongs to this dispatcher.
// A job that is not resumed within Config.Resume is released. The worker has stopped it by then.
//
// A job is also detached when the session of a remote worker ends without a goodbye,
// because the end of a connection over a network does not prove that the worker is
// dead. It may continue the job, so the job must not run elsewhere before the worker
// has stopped it, which it does within Config.RemoteResume. Then the worker counts as
// lost. If another dispatcher has adopted the row meanwhile, the end that is recorded
// here is stale and changes nothing.

// detachAll detaches the jobs of a session, except for one job, and removes the
// slots. Requests of local workers are not detached: their callers wait, so another
// worker executes them. The first worker may continue such a request for a moment. Its
// reports are then stale. When it reconnects, the dispatcher does not accept its resume
// offer.
func (c *Core) detachAll(s *session, except *job) {
	if !s.remote && (c.cfg.Resume <= 0 || s.notResumable) {
		return
	}
	for _, ref := range s.slots {
		j := c.slots[ref].job
		if j == nil || j == except || j.fingerprint == 0 || j.stop == leaseLost || j.state != stateRunning && j.state != stateStopping {
			continue
		}
		c.retire(c.vacate(j))
		if s.remote {
			c.part(j, &sessionEnd{session: s, disconnected: true}, false)
		} else {
			c.detach(j)
		}
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

// mayContinue reports whether the worker of a session that has ended may execute a job of it. The worker stops
// jobs that were revoked before the lease of this dispatcher ends.
func (end *sessionEnd) mayContinue(j *job) bool {
	s := end.session
	return (s.remote || s.away) && !s.goodbye && (j.state == stateServing || j.state == stateRunning || j.state == stateStopping)
}

// part detaches a job of a worker that may live and may execute it until it must have resumed it.
func (c *Core) part(j *job, end *sessionEnd, withdrawn bool) {
	j.lost = &lostJob{end: end, withdrawn: withdrawn}
	c.detach(j)
}

// armResume sets the instant at which a job without a session ends: no worker executes it any more. A local worker that goes to another
// dispatcher may execute it for as long as any local worker. The deadline of a request may come earlier.
func (c *Core) armResume(j *job) {
	wait := c.cfg.Resume
	if j.lost != nil && j.lost.end.session.remote {
		wait = c.cfg.RemoteResume
	}
	at := c.now.After(wait)
	if j.mode == dispatcherd.OnDemand && j.timeout > 0 {
		at = min(at, j.request.arrival.After(j.timeout))
	}
	c.arm(j, at)
}

// notResumed ends a detached job whose worker did not resume the job in time.
func (c *Core) notResumed(j *job) {
	if l := j.lost; l != nil && (j.mode == dispatcherd.OnDemand || !l.end.disconnected) {
		j.lost = nil
		c.workerLost(j, l.end, l.withdrawn)
		return
	}
	if j.state == stateDetachedStopping {
		c.end(
			j,
			c.outcome(j, &Result{Error: "the job was told to stop, its worker was disconnected, and the worker did not resume the job"}),
		)
		return
	}
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
	for ; len(c.rejected) > 0; c.rejected = c.rejected[1:] { // the end of a session may cause further rejections
		if s := c.sessions[c.rejected[0]]; s != nil {
			c.detachAll(s, nil)
			c.disconnect(s)
		}
	}
}

// disconnect forgets a session that this dispatcher ends. Slots that its worker
// registers later are ignored.
func (c *Core) disconnect(s *session) {
	c.endSession(s, true)
	c.disconnected[s.id] = struct{}{}
}
