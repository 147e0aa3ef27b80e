package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func (ev Released) apply(c *Core) {
	// Look them all up before the first is changed: with very many jobs in hand
	// each is cold memory, and this way it is fetched side by side.
	c.found = c.found[:0]
	for i := range ev.Results {
		c.found = append(c.found, c.jobs.get(ev.Results[i].Job))
	}
	c.warm()
	for i := range ev.Results {
		c.release(ev.Session, c.found[i], &ev.Results[i])
	}
}

// release ends one attempt by its worker's word. A word about an attempt that
// is not live any more changes nothing (article 1: the slot's absence from the
// map makes a late release a no-op; here the attempt does).
//
// A job named twice in one event may be forgotten by the second time, which
// its id shows.
func (c *Core) release(from dispatcherd.SessionID, j *job, r *Result) {
	if j == nil || j.id != r.Job || j.attempt != r.Attempt || j.stage != running {
		c.stats.Stale++
		c.emit(c.memory.stale.add(Stale{Session: from, Job: r.Job, Attempt: r.Attempt}))
		return
	}
	if j.told != from {
		c.emit(&NotHeld{Session: from, Job: r.Job, Attempt: r.Attempt})
		return
	}
	c.freeSlot(j)
	c.disarm(j)
	if j.mode == dispatcherd.OnDemand {
		c.resultOfRequest(j, r)
		return
	}
	c.end(j, c.verdict(j, r))
}

// verdict turns a worker's word into the job's fate.
func (c *Core) verdict(j *job, r *Result) contract.Finish {
	switch {
	case r.OK:
		c.stats.Done++
		return contract.Finish{Outcome: contract.Succeeded, Result: r.Value}
	case j.cancel:
		c.stats.Cancelled++
		return contract.Finish{Outcome: contract.Cancelled, Error: r.Error}
	case r.Returned || j.revoked:
		c.stats.Freed++
		j.returned = true
		return contract.Finish{Outcome: contract.Released}
	case r.Permanent && !j.late || j.failures+1 >= j.tries:
		c.stats.Failed++
		return contract.Finish{Outcome: contract.FailedFinal, Error: r.Error}
	}
	c.stats.Retried++
	delay := r.RetryAfter
	if delay <= 0 {
		delay = c.cfg.Retry.Delay(int(j.failures), c.rng)
	}
	return contract.Finish{Outcome: contract.Retry, Error: r.Error, Delay: min(delay, 24*time.Hour)}
}

func (ev CancelRequested) apply(c *Core) {
	for _, id := range ev.Jobs {
		j := c.jobs.get(id)
		if j == nil || j.mode != dispatcherd.Queued || j.cancel {
			continue
		}
		j.cancel = true
		if j.stage == running {
			c.tellToStop(j, "cancelled on request")
		}
	}
}

func (Disowned) apply(c *Core) {
	c.disowned = true
	c.backlog.GateReset()
	c.giveBack()
	for _, j := range c.inHand() {
		if j.mode == dispatcherd.Queued && j.stage == running && !j.revoked {
			j.revoked = true
			c.emit(&Cancel{Session: j.told, Job: j.id, Attempt: j.attempt, Reason: "this dispatcher cannot prove that the job is still its own"})
		}
	}
}

func (Owned) apply(c *Core) {
	c.disowned = false
	c.backlog.RowsMayHaveCome()
}

func (Drained) apply(c *Core) {
	if c.draining {
		return
	}
	c.draining = true
	c.backlog.Drain()
	c.giveBack()
	c.turnAway()
	for _, id := range c.sessionIDs() {
		if s := c.sessions[id]; s.undecided > 0 {
			c.rebuff(s, &TurnAway{Session: id, Reason: stops})
			continue
		}
		c.emit(&GoAway{Session: id})
	}
}

func (HandedOver) apply(c *Core) {
	c.leaving = true
	for _, j := range c.inHand() {
		switch {
		case j.stage != running:
		case j.mode == dispatcherd.OnDemand:
			c.interruptRequest(j)
		case j.slot == noSlot:
			c.leaveBehind(j)
		}
	}
}

// takeBack frees the slot of a job and tells its worker to stop it.
func (c *Core) takeBack(j *job) {
	c.freeSlot(j)
	c.emit(&Cancel{Session: j.told, Job: j.id, Attempt: j.attempt, Reason: "the dispatcher stops"})
}

func (c *Core) interruptRequest(j *job) {
	c.takeBack(j)
	c.answer(j, AnswerStopping, nil, "the dispatcher stopped before the worker answered")
}

func (Interrupted) apply(c *Core) {
	for _, j := range c.inHand() {
		switch {
		case j.stage != running:
		case j.mode == dispatcherd.OnDemand:
			c.interruptRequest(j)
		default:
			c.takeBack(j)
			c.end(j, contract.Finish{Outcome: contract.Released})
		}
	}
}
