package actor

import (
	"fmt"
	"time"
)

// limit is how long an attempt may last: the row's own limit, or else that of
// its type; 0 = without a limit. Requests have deadlines instead.
func (c *Core) limit(j *job, own time.Duration) time.Duration {
	if own > 0 {
		return own
	}
	return c.types[j.typ].limit
}

// keepTimeout remembers when the timeout of a job passes that is detached.
func (j *job) keepTimeout() {
	if j.alarm != 0 {
		j.row.timeoutAt = j.deadline
	}
}

// restoreTimeout makes that the deadline again.
func (c *Core) restoreTimeout(j *job) {
	c.disarm(j)
	if j.row.timeoutAt != 0 {
		c.arm(j, j.row.timeoutAt)
		j.row.timeoutAt = 0
	}
}

// expire handles the deadlines that have passed.
func (c *Core) expire() {
	for c.alarms.first() <= c.now {
		j := c.alarms[0]
		c.disarm(j)
		c.overdue(j)
	}
}

// overdue handles a job whose deadline has passed.
func (c *Core) overdue(j *job) {
	switch j.state {
	case waiting, serving:
		c.expireRequest(j)
	case running, revoked:
		c.stats.TimedOut++
		c.tellToStop(j, timedOut) // what the worker reports afterwards is no permanent failure
	case stopping, abandoned:
		c.hangUp(j)
	case detached, detachedStopping:
		c.notResumed(j)
	}
}

// hangUp ends the session of a worker that ignored a cancel. The job ends the
// way it was told to. The session's other jobs are detached, or released if the
// worker would not resume them.
func (c *Core) hangUp(j *job) {
	s := c.sessions[j.sentTo]
	c.stats.HungUp++
	c.emit(&HangUp{
		Session: s.id, Job: j.id, Attempt: j.attempt,
		Reason: fmt.Sprintf("the job was told to stop and did not end within %v", c.cfg.CancelGrace),
	})
	c.detachAll(s, j)
	if j.state == stopping && j.stop != leaseLost {
		reason := fmt.Sprintf("it did not end within %v after it was told to", c.cfg.CancelGrace)
		if j.stop == timedOut {
			reason = fmt.Sprintf("timeout: it ran longer than %v, and %s", j.timeout, reason)
		}
		c.end(j, c.outcome(j, &Result{Error: reason}))
	}
	c.disconnect(s)
}
