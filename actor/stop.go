package actor

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
)

func (ev CancelRequested) apply(c *Core) {
	for _, id := range ev.Jobs {
		if j := c.jobs[id]; j != nil && j.mode == dispatcherd.Queued && j.stop != cancelled {
			c.tellToStop(j, cancelled)
		}
	}
}

func (ev Abandoned) apply(c *Core) {
	j := c.jobs[ev.Job]
	if j == nil || j.mode != dispatcherd.OnDemand {
		return
	}
	switch j.state {
	case stateWaiting, stateParted: // the worker of a parted one is not told to resume it
		c.move(j, onAnswer)
	case stateServing:
		c.tellToStop(j, hungUp)
	}
}

func (Disowned) apply(c *Core) {
	c.disowned = true
	c.backlog.GateReset()
	c.giveUpUnsent()
	c.orderAll((*Core).revoke)
}

// revoke tells the worker of a queued job to stop it, because the lease may have
// ended.
func (c *Core) revoke(j *job) {
	if j.mode == dispatcherd.Queued && j.state.executing() && j.stop < leaseLost {
		j.stop = leaseLost
		c.move(j, onRevoke)
	}
}

func (Owned) apply(c *Core) {
	c.disowned = false
	c.backlog.RowsMayHaveCome()
}

// expire handles the deadlines that have passed.
func (c *Core) expire() {
	for until := c.budget(); c.firstAlarm() <= c.now && c.worked() < until; c.work += jobWork {
		j := c.alarms[0]
		c.disarm(j)
		c.overdue(j)
	}
}

// overdue handles a job whose deadline has passed.
func (c *Core) overdue(j *job) {
	switch j.state {
	case stateWaiting, stateServing:
		c.expireRequest(j)
	case stateRunning, stateRevoked:
		c.stats.TimedOut++
		c.tellToStop(j, timedOut) // a failure that the worker reports afterwards does not count as permanent
	case stateStopping, stateAbandoned:
		c.hangUp(j)
	case stateParted:
		if c.pastDeadline(j) {
			c.answer(j, effect.AnswerLate, nil, c.lateReason(j))
			return
		}
		c.notResumed(j)
	case stateDetached, stateDetachedStopping:
		c.notResumed(j)
	}
}

// hangUp ends the session of a worker that ignored a cancel. The outcome of the job
// follows from its stopReason. The other jobs of the session are detached, or
// released if the worker cannot resume them. The job of a remote worker ends when
// the worker can no longer execute it.
func (c *Core) hangUp(j *job) {
	s := c.sessions[j.sentTo]
	if s == nil {
		return // the session has ended, and sweep will handle the job
	}
	c.stats.HungUp++
	c.emit(&effect.HangUp{
		Session: s.id, Job: j.id, Attempt: j.attempt,
		Reason: fmt.Sprintf("the job was told to stop and did not end within %v", c.cfg.CancelGrace),
	})
	except := j
	if s.remote { // the worker may not have received the cancel
		except = nil
	}
	c.detachAll(s, except)
	if j.state == stateStopping && j.stop != leaseLost {
		reason := fmt.Sprintf("it did not end within %v after it was told to", c.cfg.CancelGrace)
		c.end(j, c.outcome(j, &Result{Error: reason}))
	}
	c.disconnect(s)
}
