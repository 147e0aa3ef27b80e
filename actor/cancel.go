package actor

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// stopReason is why a job was told to stop. Of several reasons the largest one
// decides how the attempt ends.
type stopReason uint8

const (
	notStopped stopReason = iota
	hungUp                // on-demand: the caller is gone
	timedOut              // the time of the attempt, or the request's deadline, has passed
	leaseLost             // the attempt ends as released: it is not the job's fault
	cancelled             // the attempt ends as cancelled
)

// String is what the worker is told.
func (r stopReason) String() string {
	return [...]string{
		"", "the caller hung up", "timeout",
		"this dispatcher cannot prove that the job is still its own", "cancelled on request",
	}[r]
}

func (ev CancelRequested) apply(c *Core) {
	for _, id := range ev.Jobs {
		if j := c.jobs.get(id); j != nil && j.mode == dispatcherd.Queued && j.stop != cancelled {
			c.tellToStop(j, cancelled)
		}
	}
}

// tellToStop stops a job. Its worker has Config.CancelGrace to end it. A job that
// is detached or whose claim is in flight stops when it would continue.
func (c *Core) tellToStop(j *job, reason stopReason) {
	j.stop = max(j.stop, reason)
	c.move(j, onStop)
}

func (c *Core) sendCancel(j *job) {
	c.emit(&Cancel{Session: j.sentTo, Job: j.id, Attempt: j.attempt, Reason: j.stop.String()})
}

// releaseRow ends the attempt of a row that a claim won and that is not to run.
func (c *Core) releaseRow(j *job) {
	if j.stop == cancelled {
		c.stats.Cancelled++
		c.recordEnd(j, contract.Finish{Outcome: contract.Cancelled})
		return
	}
	c.stats.Released++
	c.recordEnd(j, contract.Finish{Outcome: contract.Released})
}

func (ev Abandoned) apply(c *Core) {
	j := c.jobs.get(ev.Job)
	if j == nil || j.mode != dispatcherd.OnDemand {
		return
	}
	switch j.state {
	case waiting:
		c.move(j, onAnswer)
	case serving:
		c.tellToStop(j, hungUp)
	}
}
