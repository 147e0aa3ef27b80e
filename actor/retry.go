package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// maxRetryDelay bounds the delay that a worker asks for.
const maxRetryDelay = 24 * time.Hour

func (ev Released) apply(c *Core) {
	for i := range ev.Results {
		c.endAttempt(ev.Session, &ev.Results[i])
	}
}

// endAttempt ends one attempt by its worker's report. A report about an attempt
// that is not the current one changes nothing (article 1: the slot's absence
// from the map makes a late release a no-op; here the attempt does).
func (c *Core) endAttempt(from dispatcherd.SessionID, r *Result) {
	j := c.jobs.get(r.Job)
	if !c.isCurrent(j, from, r.Job, r.Attempt) {
		return
	}
	if j.mode == dispatcherd.OnDemand {
		c.endRequest(j, r)
		return
	}
	c.end(j, c.outcome(j, r))
}

// isCurrent reports whether a worker's report is about an attempt that its
// session executes. Otherwise the worker is told so.
func (c *Core) isCurrent(j *job, from dispatcherd.SessionID, id dispatcherd.JobID, a dispatcherd.Attempt) bool {
	switch {
	case j == nil || j.attempt != a || !j.state.executing():
		c.stats.Stale++
		c.emit(c.memory.stale.add(Stale{Session: from, Job: id, Attempt: a}))
		return false
	case j.sentTo != from:
		c.emit(&NotHeld{Session: from, Job: id, Attempt: a})
		return false
	}
	return true
}

// outcome decides how an attempt of a queued job ends, by its worker's result.
func (c *Core) outcome(j *job, r *Result) contract.Finish {
	switch {
	case r.OK:
		c.stats.Done++
		return contract.Finish{Outcome: contract.Succeeded, Result: r.Value}
	case j.stop == cancelled:
		c.stats.Cancelled++
		return contract.Finish{Outcome: contract.Cancelled, Error: r.Error}
	case r.Returned || j.stop == leaseLost:
		c.stats.Released++
		j.row.returned = true
		return contract.Finish{Outcome: contract.Released}
	case r.Permanent && j.stop != timedOut || j.row.failures+1 >= j.row.maxAttempts:
		c.stats.Failed++
		return contract.Finish{Outcome: contract.FailedFinal, Error: r.Error}
	}
	c.stats.Retried++
	delay := r.RetryAfter
	if delay <= 0 {
		delay = c.cfg.Retry.Delay(int(j.row.failures), c.rng)
	}
	return contract.Finish{Outcome: contract.Retry, Error: r.Error, Delay: min(delay, maxRetryDelay)}
}
