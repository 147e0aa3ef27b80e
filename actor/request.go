package actor

import (
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// A waiting request expires at its deadline. If no slot supports its type, it also
// expires at the end of its capacity wait.

func (ev Requested) apply(c *Core) {
	if reason, kind := c.rejectRequest(ev); kind != 0 {
		c.emit(&effect.Answer{Job: ev.Job, Kind: kind, Reason: reason, PauseEnds: c.controls.paused[ev.Type].left(c.now)})
		return
	}
	j := c.newJob()
	j.id, j.mode, j.Priority, j.Class = ev.Job, dispatcherd.OnDemand, ev.Priority, ev.Class
	j.delivery.Payload, j.delivery.Traceparent, j.timeout = ev.Payload, ev.Traceparent, ev.Deadline
	j.request.requestPlace, j.request.capacityWait = requestPlace{c.now, ev.Job}, ev.CapacityWait
	j.request.patient = ev.Wait || ev.Session != 0
	if !ev.Wait {
		j.request.capacityWait = max(j.request.capacityWait, c.cfg.ReconnectGrace)
	}
	j.request.user = ev.User
	if ev.Session != 0 {
		j.request.pin, j.request.capacityWait = c.sessions[ev.Session], 0
	}
	j.Type = c.hold(ev.Type, ev.User)
	c.keep(j)
	c.move(j, onEnqueue)
	c.enqueue(j)
}

// rejectRequest decides whether a request must be answered at once. In that case it
// returns the answer and the reason.
func (c *Core) rejectRequest(ev Requested) (string, effect.AnswerKind) {
	t, known := c.index.Lookup(ev.Type)
	absent := !known || c.index.Capacity(t) == 0
	switch p := c.controls.paused[ev.Type]; {
	case c.draining:
		return "the dispatcher is about to stop", effect.AnswerStopping
	case !ev.Wait && (p.outlasts(c.now, ev.Deadline) || p != nil && absent && c.otherCapacity[ev.Type] > 0):
		return p.Text(), effect.AnswerPaused
	case !c.quotas.Requests.Fits(ev.User, 1):
		return c.quotas.Requests.Objection(ev.User, 1, "waiting requests"), effect.AnswerBusy
	case ev.Session != 0 && c.rejectPinned(&ev) != "":
		return c.rejectPinned(&ev), effect.AnswerUnsupported
	case !ev.Wait && absent:
		return noSlotSupports(ev.Type), effect.AnswerUnsupported
	case !c.mayHold(ev.Type, ev.User):
		return c.quotas.Types.Objection(ev.User, 1, "types"), effect.AnswerBusy
	}
	return "", 0
}

// enqueue adds a request to its queue, and sets its deadline.
func (c *Core) enqueue(j *job) {
	queues := c.queuesOf(j)
	q := queues.find(j.Lane)
	if q == nil {
		q = &requestQueue{lane: j.Lane}
		*queues = append(*queues, q)
	}
	q.requests = slices.Insert(q.requests, q.through(j.request.requestPlace), j)
	j.request.waitsSince = c.now
	c.requestsChanged(j, 1)
	c.watch(j)
}

// dequeue removes a waiting request from its queue.
func (c *Core) dequeue(j *job) {
	queues := c.queuesOf(j)
	q := queues.find(j.Lane)
	if at := q.through(j.request.requestPlace); at > 1 {
		q.requests = slices.Delete(q.requests, at-1, at)
	} else {
		q.requests = q.requests[1:] // mostly; in constant time
	}
	if len(q.requests) == 0 {
		*queues = slices.DeleteFunc(*queues, func(o *requestQueue) bool { return o == q })
	}
	c.requestsChanged(j, -1)
}

// queuesOf returns the queues that contain a request while it waits.
func (c *Core) queuesOf(j *job) *requestQueues {
	if s := j.request.pin; s != nil {
		return &s.pinned
	}
	return &c.types[j.Type].demand
}

// find returns the queue of a type, priority and duration class, or nil.
func (l requestQueues) find(r backlog.Lane) *requestQueue {
	for _, q := range l {
		if q.lane == r {
			return q
		}
	}
	return nil
}

// requestsChanged notes that n more requests wait, in the queue of j.
func (c *Core) requestsChanged(j *job, n int) {
	c.quotas.Requests.Add(j.request.user, n)
	k := c.types[j.Type]
	if s := j.request.pin; s != nil {
		k.pinned += int32(n)
		c.touchPins(s)
		return
	}
	k.urgent = k.urgent || n > 0 && !k.pause.requests()
	c.requesting.Set(j.Type, len(k.startable()) > 0)
	if c.waits(j.Type) {
		c.touch(j.Type)
	}
}

// requeue returns a request that was running to its place in the queue.
func (c *Core) requeue(j *job) {
	c.move(j, onRequeue)
	c.types[j.Type].durations.End(&j.run, j.Class)
	j.sentAt = notSent
	c.enqueue(j)
}

// endRequest ends one execution of a request according to the result of its worker.
func (c *Core) endRequest(j *job, r *Result) {
	switch {
	case r.OK:
		c.durations.Learn(c.types[j.Type].durations, j.Class, int64(c.now-j.sentAt))
		c.answer(j, effect.AnswerDone, r.Value, "")
	case r.Returned && j.request.pin != nil && !c.draining:
		c.answer(j, effect.AnswerFailed, nil, "the worker returned the request, which is not retried")
	case r.Returned && j.state == stateServing && !c.draining && int(j.request.returns) < c.cfg.Limits.Crashes:
		j.request.returns++
		c.requeue(j)
	case r.Returned && c.draining:
		c.answer(j, effect.AnswerStopping, nil, "the worker returned the request and the dispatcher is about to stop")
	case r.Returned:
		c.answer(j, effect.AnswerFailed, nil, "workers returned the request again and again")
	case c.pastDeadline(j) && j.state == stateServing: // the worker also measures the time, and its report arrived before the alarm
		c.answer(j, effect.AnswerLate, nil, c.lateReason(j))
	default:
		c.answer(j, effect.AnswerFailed, nil, r.Error)
	}
}

// answer ends a request. The caller of an abandoned request gets no answer, because
// the caller was answered before or has disconnected.
func (c *Core) answer(j *job, kind effect.AnswerKind, result []byte, reason string) {
	if j.state == stateAbandoned && c.pastDeadline(j) {
		c.logEnd(j, 0, effect.AnswerLate)
	} else {
		c.logEnd(j, 0, kind)
	}
	if j.state != stateAbandoned {
		c.emit(&effect.Answer{Job: j.id, Kind: kind, Result: result, Reason: reason, PauseEnds: c.types[j.Type].pause.left(c.now)})
	}
	c.move(j, onAnswer)
}

// watch sets the alarm of a request: its deadline or, while it waits, the instant at which it need not wait any longer.
func (c *Core) watch(j *job) {
	at := timing.Never
	if j.timeout > 0 {
		at = j.request.arrival.After(j.timeout)
	}
	if j.state == stateWaiting {
		at = min(at, c.hopeless(j))
	}
	if at == timing.Never {
		c.disarm(j)
		return
	}
	c.arm(j, at)
}

// hopeless returns when a waiting request is refused if its type is still paused, or no slot supports it, by then.
func (c *Core) hopeless(j *job) timing.Instant {
	k := c.types[j.Type]
	since, paused := k.lostAt, k.pause.requests()
	switch {
	case !j.request.patient && k.pause.outlasts(j.request.arrival, j.timeout):
		return c.now
	case j.request.capacityWait == 0:
		return timing.Never
	case paused && j.request.patient:
		since = max(since, k.pause.since)
	case c.index.Capacity(j.Type) > 0:
		return timing.Never
	}
	return max(j.request.waitsSince, since).After(j.request.capacityWait)
}

// watchAll calls watch for each waiting request of a type that has lost its last slot or got its first one, or that was paused or resumed.
func (c *Core) watchAll(t slotindex.TypeID) {
	for _, q := range c.types[t].demand {
		for _, j := range q.requests {
			c.work++
			c.watch(j)
		}
	}
}

// pastDeadline reports whether a request's deadline has passed.
func (c *Core) pastDeadline(j *job) bool {
	return j.timeout > 0 && c.now >= j.request.arrival.After(j.timeout)
}

// expireRequest ends a request whose alarm has fired.
func (c *Core) expireRequest(j *job) {
	switch {
	case j.state != stateWaiting: // the execution ends later
		c.tellToStop(j, timedOut)
		c.emit(&effect.Answer{Job: j.id, Kind: effect.AnswerLate, Reason: c.lateReason(j)})
	case c.pastDeadline(j):
		c.answer(j, effect.AnswerLate, nil, c.lateReason(j))
	case c.types[j.Type].pause.requests():
		c.answer(j, effect.AnswerPaused, nil, c.types[j.Type].pause.Text())
	default:
		c.answer(j, effect.AnswerUnsupported, nil, noSlotSupports(c.index.Name(j.Type))+", and none came in time")
	}
}

// noSlotSupports is a part of the reason of an answer.
func noSlotSupports(name string) string { return fmt.Sprintf("no slot supports type %q", name) }

// lateReason says that the deadline has passed, whether a worker had received the request, and whether a slot supports
// the type.
func (c *Core) lateReason(j *job) string {
	reason := "the deadline passed; the request had not started"
	if j.sentTo != 0 { // it stays set while the request waits again
		reason = "the deadline passed; the request had started"
	}
	if p := c.types[j.Type].pause; j.state == stateWaiting && p.requests() {
		reason += "; " + p.Text()
	}
	if j.state == stateWaiting && c.index.Capacity(j.Type) == 0 {
		reason += "; " + noSlotSupports(c.index.Name(j.Type))
	}
	return reason
}

// WaitsForCapacity reports whether a request waits and no slot supports its type.
func (c *Core) WaitsForCapacity(id dispatcherd.JobID) bool {
	j := c.jobs[id]
	return j != nil && j.state == stateWaiting && c.index.Capacity(j.Type) == 0
}

// Capacity returns the number of slots that support a type, here and, according to the last
// heartbeats, at other dispatchers.
func (c *Core) Capacity(name string) (own, others int) {
	if t, known := c.index.Lookup(name); known {
		own = c.index.Capacity(t)
	}
	return own, c.otherCapacity[name]
}

// requestPlace is the place of a request in its queue. Ids decrease from request to request. But
// the id of a request is drawn before the loop receives the request. So of two
// requests at about the same time, the one with the larger id may arrive later.
type requestPlace struct {
	arrival timing.Instant
	id      dispatcherd.JobID
}

// through returns how many requests come before a place or have it.
func (q *requestQueue) through(p requestPlace) int {
	return sort.Search(len(q.requests), func(i int) bool {
		r := &q.requests[i].request
		return r.arrival > p.arrival || r.arrival == p.arrival && r.id < p.id
	})
}

// pins are the sessions whose pinned requests need work.
type pins struct {
	dirty []*session // may have both a pinned request and a free slot for it
	check []*session // may have lost the last slot for a pinned request
}

// inOrder ranges over the requests. Meanwhile some may come or go.
func (q *requestQueue) inOrder() iter.Seq[*job] {
	return func(yield func(*job) bool) {
		for at := 0; at < len(q.requests); {
			j := q.requests[at]
			place := j.request.requestPlace
			if !yield(j) {
				return
			}
			at = q.through(place)
		}
	}
}

// A pinned request may run in one session only, and only once: if its worker returns it or
// is lost, it fails. It waits in a queue of this session and competes by its score, like
// other requests. It gets the most specialised free slot of its session. It does not preempt.

// rejectPinned decides whether a pinned request must be answered at once.
func (c *Core) rejectPinned(ev *Requested) string {
	s := c.sessions[ev.Session]
	if s == nil {
		return "the worker has disconnected"
	}
	if t, known := c.index.Lookup(ev.Type); !known || !c.offers(s, t) {
		return fmt.Sprintf("no slot of worker %s supports type %q", s.worker, ev.Type)
	}
	return ""
}

// failPinned answers the pinned requests whose sessions have no slot for them any more,
// until the budget is used up.
func (c *Core) failPinned() {
	for until := c.budget(); len(c.pins.check) > 0; c.pins.check = c.pins.check[1:] {
		s := c.pins.check[0]
		for at := 0; at < len(s.pinned); {
			q := s.pinned[at]
			if c.offers(s, q.lane.Type) {
				at++
				continue
			}
			for len(q.requests) > 0 {
				if c.worked() >= until {
					return
				}
				c.work += jobWork
				c.answer(q.requests[0], effect.AnswerFailed, nil, "the worker disconnected or removed its slots before the request started")
			}
		}
		s.pinsCheck = false
	}
	c.pins.check = nil
}

// offers reports whether a session has a slot for a type that still takes jobs.
func (c *Core) offers(s *session, t slotindex.TypeID) bool {
	c.work += len(s.slots)
	return c.sessions[s.id] == s && slices.ContainsFunc(s.slots, func(ref slotindex.Ref) bool {
		return !c.index.IsDraining(ref) && c.index.Supports(ref, t)
	})
}

// freeSlotOf returns the free slot of a session that supports a type and has the fewest
// types; among equals, the one with the smallest SlotID. It visits all slots of the session.
func (c *Core) freeSlotOf(s *session, t slotindex.TypeID) (best slotindex.Ref, found bool) {
	best = noSlot
	c.work += len(s.slots)
	for _, ref := range s.slots {
		if !c.index.IsFree(ref) || !c.index.Supports(ref, t) {
			continue
		}
		n := len(c.index.TypesOf(ref))
		if best == noSlot || n < len(c.index.TypesOf(best)) || n == len(c.index.TypesOf(best)) && c.index.SlotID(ref) < c.index.SlotID(best) {
			best = ref
		}
	}
	return best, best != noSlot
}

// touchPins marks a session as dirty.
func (c *Core) touchPins(s *session) {
	if len(s.pinned) > 0 && !s.pinsDirty {
		s.pinsDirty = true
		c.pins.dirty = append(c.pins.dirty, s)
	}
}

// checkPins notes that a session may have lost the last slot for a pinned request.
func (c *Core) checkPins(s *session) {
	if len(s.pinned) > 0 && !s.pinsCheck {
		s.pinsCheck = true
		c.pins.check = append(c.pins.check, s)
	}
}
