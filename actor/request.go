package actor

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd"
)

func (ev Requested) apply(c *Core) {
	if reason, kind := c.rejectRequest(ev); kind != 0 {
		c.reply(Answer{Job: ev.Job, Kind: kind, Reason: reason})
		return
	}
	j := c.newJob()
	j.id, j.mode, j.priority = ev.Job, dispatcherd.OnDemand, ev.Priority
	j.payload, j.timeout = ev.Payload, ev.Deadline
	j.request.arrival, j.request.patience = c.now, ev.Patience
	if !ev.Wait {
		j.request.patience = max(j.request.patience, c.cfg.ReconnectGrace)
	}
	j.typ = c.hold(ev.Type)
	c.keep(j)
	c.move(j, onEnqueue)
	c.types[j.typ].demand[j.priority].push(j)
	c.enqueued(j)
}

// rejectRequest says why a request is answered at once, and how.
func (c *Core) rejectRequest(ev Requested) (string, AnswerKind) {
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

// enqueued counts a request that was put into its queue, and sets its deadline.
func (c *Core) enqueued(j *job) {
	c.requests++
	c.types[j.typ].urgent = true
	c.requestsChanged(j.typ, j.priority)
	c.watch(j)
}

// dequeue removes a waiting request from its queue.
func (c *Core) dequeue(j *job) {
	c.types[j.typ].demand[j.priority].remove(j)
	c.requests--
	c.requestsChanged(j.typ, j.priority)
}

// requeue returns a request that was running to its place in the queue.
func (c *Core) requeue(j *job) {
	c.move(j, onRequeue)
	j.sentAt = notSent
	c.types[j.typ].demand[j.priority].putBack(j)
	c.enqueued(j)
}

// endRequest ends one execution of a request by its worker's result.
func (c *Core) endRequest(j *job, r *Result) {
	switch {
	case r.OK:
		c.answer(j, AnswerDone, r.Value, "")
	case r.Returned && j.state == serving && !c.draining && int(j.request.returns) < c.cfg.Limits.Crashes:
		j.request.returns++
		c.requeue(j)
	case r.Returned && c.draining:
		c.answer(j, AnswerStopping, nil, "the worker returned the request and the dispatcher is about to stop")
	case r.Returned:
		c.answer(j, AnswerFailed, nil, "workers returned the request again and again")
	case c.pastDeadline(j) && j.state == serving: // the worker, which measures the time too, was faster than the alarm
		c.answerLate(j)
		c.move(j, onAnswer)
	default:
		c.answer(j, AnswerFailed, nil, r.Error)
	}
}

// answer ends a request. The caller of an abandoned one was answered before, or
// hung up.
func (c *Core) answer(j *job, kind AnswerKind, result []byte, reason string) {
	if j.state == abandoned && c.pastDeadline(j) {
		c.logEnd(j, 0, AnswerLate)
	} else {
		c.logEnd(j, 0, kind)
	}
	if j.state != abandoned {
		c.stats.Answered++
		c.reply(Answer{Job: j.id, Kind: kind, Result: result, Reason: reason})
	}
	c.move(j, onAnswer)
}

func (c *Core) reply(a Answer) { c.emit(c.memory.answer.add(a)) }
