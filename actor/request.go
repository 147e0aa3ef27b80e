package actor

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

func (ev Requested) apply(c *Core) {
	if reason, kind := c.refuseRequest(ev); kind != 0 {
		c.reply(Answer{Job: ev.Job, Kind: kind, Reason: reason})
		return
	}
	j := c.newJob()
	j.id, j.mode, j.stage, j.priority = ev.Job, dispatcherd.OnDemand, waiting, ev.Priority
	j.arrival, j.payload, j.timeout = c.now, ev.Payload, ev.Deadline
	j.patience = ev.Patience
	if !ev.Wait {
		j.patience = max(j.patience, c.cfg.Comeback)
	}
	j.typ = c.hold(ev.Type)
	c.keep(j)
	c.types[j.typ].demand[j.priority].push(j)
	c.enqueued(j)
}

// watch sets the alarm of a waiting request: its deadline, or the end of its
// patience without any slot, whichever comes first.
func (c *Core) watch(j *job) {
	at := Never
	if j.timeout > 0 {
		at = j.arrival.After(j.timeout)
	}
	switch {
	case c.index.Capacity(j.typ) > 0:
		j.bereft = 0
	case j.bereft == 0 && j.patience > 0:
		j.bereft = c.now.After(j.patience)
	}
	if j.bereft != 0 {
		at = min(at, j.bereft)
	}
	if at == Never {
		c.disarm(j)
		return
	}
	c.arm(j, at)
}

// watchAll does so for all waiting requests of a type that has lost its last
// slot, or has its first.
func (c *Core) watchAll(t slotindex.TypeID) {
	for p := range c.types[t].demand {
		for j := c.types[t].demand[p].first; j != nil; j = j.next {
			c.watch(j)
		}
	}
}

func (c *Core) refuseRequest(ev Requested) (string, AnswerKind) {
	t, known := c.index.Lookup(ev.Type)
	switch {
	case c.draining:
		c.stats.Busy++
		return "the dispatcher is about to stop", AnswerStopping
	case c.requests >= c.cfg.Limits.Requests:
		c.stats.Busy++
		return fmt.Sprintf("%d requests wait already, the limit", c.requests), AnswerBusy
	case !ev.Wait && (!known || c.index.Capacity(t) == 0):
		c.stats.Unsupported++
		return fmt.Sprintf("no slot supports type %q", ev.Type), AnswerUnsupported
	case !known && c.known >= c.cfg.Limits.Types:
		c.stats.Busy++
		return fmt.Sprintf("%d types are known already, the limit", c.known), AnswerBusy
	}
	return "", 0
}

// enqueued counts a request that was put into its line, and watches it there.
func (c *Core) enqueued(j *job) {
	c.requests++
	c.types[j.typ].urgent = true
	c.requestsChanged(j.typ, j.priority)
	c.watch(j)
}

// dequeue takes a waiting request out of its line.
func (c *Core) dequeue(j *job) {
	c.types[j.typ].demand[j.priority].remove(j)
	c.requests--
	c.requestsChanged(j.typ, j.priority)
}

// bereaveRequest puts a request whose worker died back into its line, in its
// old place, until it has brought down too many.
func (c *Core) bereaveRequest(j *job) {
	j.crashes++
	c.stats.Crashed++
	switch {
	case j.orphan:
		c.forget(j)
	case int(j.crashes) >= c.cfg.Limits.Crashes:
		c.stats.Quarantine++
		c.answer(j, AnswerFailed, nil, fmt.Sprintf("%d workers died while they ran it", j.crashes))
	case c.draining:
		c.answer(j, AnswerStopping, nil, "the worker died and the dispatcher is about to stop")
	default:
		c.requeue(j)
	}
}

// requeue puts a request that was running back into its old place.
func (c *Core) requeue(j *job) {
	j.stage = waiting
	c.types[j.typ].demand[j.priority].putBack(j)
	c.enqueued(j)
}

func (c *Core) resultOfRequest(j *job, r *Result) {
	switch {
	case r.OK:
		c.answer(j, AnswerDone, r.Value, "")
	case r.Returned && !j.orphan && !c.draining && int(j.returns) < c.cfg.Limits.Crashes:
		j.returns++
		c.requeue(j)
	case r.Returned && c.draining:
		c.answer(j, AnswerStopping, nil, "the worker gave the request back and the dispatcher is about to stop")
	case r.Returned:
		c.answer(j, AnswerFailed, nil, "workers gave the request back again and again")
	case c.pastDeadline(j) && !j.orphan: // the worker, who keeps the time too, was heard before the alarm
		c.answerLate(j)
		c.forget(j)
	default:
		c.answer(j, AnswerFailed, nil, r.Error)
	}
}

// answer ends a request. The caller of an orphan is gone already.
func (c *Core) answer(j *job, kind AnswerKind, value []byte, reason string) {
	if !j.orphan {
		c.stats.Answered++
		c.reply(Answer{Job: j.id, Kind: kind, Result: value, Reason: reason})
	}
	c.forget(j)
}

func (c *Core) reply(a Answer) { c.emit(c.memory.answer.add(a)) }

// pastDeadline tells whether a request's deadline has passed.
func (c *Core) pastDeadline(j *job) bool {
	return j.timeout > 0 && c.now >= j.arrival.After(j.timeout)
}

func (c *Core) overdueRequest(j *job) {
	if j.stage == waiting && j.bereft != 0 && !c.pastDeadline(j) {
		c.unsupported(j)
		return
	}
	c.abandon(j, "timeout")
	c.answerLate(j)
	c.forgetWaiting(j)
}

// answerLate tells the caller that the deadline passed, which counts apart from
// answers, and that nobody could have kept it if so.
func (c *Core) answerLate(j *job) {
	c.stats.Late++
	reason := "the deadline passed"
	if j.stage == waiting && c.index.Capacity(j.typ) == 0 {
		reason += "; no slot supports type \"" + c.index.Name(j.typ) + "\""
	}
	c.reply(Answer{Job: j.id, Kind: AnswerLate, Reason: reason})
}

// unsupported answers a request that has waited for a slot in vain.
func (c *Core) unsupported(j *job) {
	c.stats.Unsupported++ // and not Answered: each request counts once
	c.dequeue(j)
	c.reply(Answer{
		Job: j.id, Kind: AnswerUnsupported,
		Reason: "no slot supports type \"" + c.index.Name(j.typ) + "\", and none came in time",
	})
	c.forget(j)
}

func (ev Abandoned) apply(c *Core) {
	if j := c.jobs.get(ev.Job); j != nil && j.mode == dispatcherd.OnDemand && !j.orphan {
		c.abandon(j, "the caller hung up")
		c.forgetWaiting(j)
	}
}

// abandon makes a request nobody's: a waiting one leaves its line, a running
// one is cancelled and keeps its slot until the worker has let go of it.
func (c *Core) abandon(j *job, reason string) {
	j.orphan = true
	if j.stage == waiting {
		c.dequeue(j)
		return
	}
	c.tellToStop(j, reason)
}

func (c *Core) forgetWaiting(j *job) {
	if j.stage == waiting {
		c.forget(j)
	}
}

// turnAway answers every waiting request when the dispatcher is about to stop.
func (c *Core) turnAway() {
	for _, j := range c.inHand() {
		if j.mode == dispatcherd.OnDemand && j.stage == waiting {
			c.dequeue(j)
			c.answer(j, AnswerStopping, nil, "the dispatcher is about to stop")
		}
	}
}
