package actor

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// limit is how long an attempt may last: the row's own limit, or else that of
// its type; 0 = as long as it takes. Requests have deadlines instead.
func (c *Core) limit(j *job, own time.Duration) time.Duration {
	if own > 0 {
		return own
	}
	return c.types[j.typ].limit
}

// tellToStop cancels a job that runs. Its worker has the grace to end it.
// One that is stranded is told when its worker is back.
func (c *Core) tellToStop(j *job, reason string) {
	if j.slot == noSlot {
		return
	}
	c.emit(&Cancel{Session: j.told, Job: j.id, Attempt: j.attempt, Reason: reason})
	if !j.dying {
		j.dying = true
		c.arm(j, c.now.After(c.cfg.CancelGrace))
	}
}

// overdue handles a job whose deadline has passed.
func (c *Core) overdue(j *job) {
	switch {
	case j.stage == running && j.slot == noSlot:
		c.notPresented(j)
	case j.stage == running && j.dying:
		c.hangUp(j)
	case j.mode == dispatcherd.OnDemand:
		c.overdueRequest(j)
	case j.stage == running:
		j.late = true // the worker gives up because it is told to, which is no verdict on the job
		c.stats.TimedOut++
		c.tellToStop(j, "timeout")
	}
}

// hangUp ends the session of a worker that goes on with a job although it was
// told to stop, and the grace is over. The job ends the way it was told to; the
// others of the session wait for their worker to come back, or are interrupted
// if it would not bring them along.
func (c *Core) hangUp(j *job) {
	s := c.sessions[j.told]
	c.stats.HungUp++
	c.emit(&HangUp{
		Session: s.id, Job: j.id, Attempt: j.attempt,
		Reason: fmt.Sprintf("the job was told to stop and did not end within %v", c.cfg.CancelGrace),
	})
	c.strandAll(s, j)
	c.revokeAll(s, j)
	if j.mode == dispatcherd.Queued && !j.revoked {
		why := fmt.Sprintf("it did not end within %v after it was told to", c.cfg.CancelGrace)
		if !j.cancel {
			why = fmt.Sprintf("timeout: it ran longer than %v, and %s", j.timeout, why)
		}
		c.freeSlot(j)
		c.end(j, c.verdict(j, &Result{Error: why}))
	}
	c.sever(s)
}
