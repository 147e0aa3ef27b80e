package actor

import (
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// A pinned request may run in one session only, and only once: if its worker returns it or
// is lost, it fails. It waits in a queue of this session and competes by its score, like
// other requests. It gets the most specialised free slot of its session. It does not preempt.

// pinQueue contains the waiting requests of one type and priority that are pinned to a
// session.
type pinQueue struct {
	requestQueue

	typ      slotindex.TypeID
	priority dispatcherd.Priority
}

// pinnedRequests are the waiting requests that are pinned to a session.
type pinnedRequests struct {
	queues []*pinQueue // not empty ones
	dirty  bool        // in pins.dirty
	check  bool        // in pins.check
}

// pins are the sessions whose pinned requests need work.
type pins struct {
	dirty []*session // may have both a pinned request and a free slot for it
	check []*session // may have lost the last slot for a pinned request
}

// rejectPinned decides whether a pinned request must be answered at once.
func (c *Core) rejectPinned(ev *event.Requested) string {
	s := c.sessions[ev.Session]
	if s == nil {
		return "the worker has disconnected"
	}
	if t, known := c.index.Lookup(ev.Type); !known || !c.offers(s, t) {
		return fmt.Sprintf("no slot of worker %s supports type %q", s.worker, ev.Type)
	}
	return ""
}

// offers reports whether a session has a slot for a type that still takes jobs.
func (c *Core) offers(s *session, t slotindex.TypeID) bool {
	c.work += len(s.slots)
	return c.sessions[s.id] == s && slices.ContainsFunc(s.slots, func(ref slotindex.Ref) bool {
		return ref != noSlot && !c.index.IsDraining(ref) && c.index.Supports(ref, t)
	})
}

// queueOf returns the queue of a waiting request, and makes it if necessary.
func (c *Core) queueOf(j *job) *requestQueue {
	if s := j.request.pin; s != nil {
		return &c.pinQueueOf(s, j.typ, j.priority).requestQueue
	}
	k := c.types[j.typ]
	if k.demand == nil {
		k.demand = make([]requestQueue, priorities)
	}
	return &k.demand[j.priority]
}

func (c *Core) pinQueueOf(s *session, t slotindex.TypeID, p dispatcherd.Priority) *pinQueue {
	for _, q := range s.pinned.queues {
		if q.typ == t && q.priority == p {
			return q
		}
	}
	q := &pinQueue{typ: t, priority: p}
	s.pinned.queues = append(s.pinned.queues, q)
	return q
}

// pinsChanged follows a change of a queue of pinned requests by n.
func (c *Core) pinsChanged(j *job, n int) {
	s := j.request.pin
	c.types[j.typ].pinned += int32(n)
	s.pinned.queues = slices.DeleteFunc(s.pinned.queues, func(q *pinQueue) bool { return q.n == 0 })
	c.touchPins(s)
}

// touchPins marks a session as dirty.
func (c *Core) touchPins(s *session) {
	if len(s.pinned.queues) > 0 && !s.pinned.dirty {
		s.pinned.dirty = true
		c.pins.dirty = append(c.pins.dirty, s)
	}
}

// keepPins calls f for the head of each queue of pinned requests for which its session has a
// free slot. Sessions without one become clean.
func (c *Core) keepPins(f func(head)) {
	kept := c.pins.dirty[:0]
	for _, s := range c.pins.dirty {
		s.pinned.dirty = false
		for _, q := range s.pinned.queues {
			if _, free := c.freeSlotOf(s, q.typ); free {
				s.pinned.dirty = true
				if f != nil {
					f(c.headOf(q.first))
				}
			}
		}
		if s.pinned.dirty {
			kept = append(kept, s)
		}
	}
	clear(c.pins.dirty[len(kept):])
	c.pins.dirty = kept
}

// freeSlotOf returns the free slot of a session that supports a type and has the fewest
// types; among equals, the one with the smallest SlotID. It visits all slots of the session.
func (c *Core) freeSlotOf(s *session, t slotindex.TypeID) (best slotindex.Ref, found bool) {
	best = noSlot
	c.work += len(s.slots)
	for _, ref := range s.slots {
		if ref == noSlot || !c.index.IsFree(ref) || !c.index.Supports(ref, t) {
			continue
		}
		n := len(c.index.TypesOf(ref))
		if best == noSlot || n < len(c.index.TypesOf(best)) || n == len(c.index.TypesOf(best)) && c.index.SlotID(ref) < c.index.SlotID(best) {
			best = ref
		}
	}
	return best, best != noSlot
}

// hasFree reports whether a slot is free for a head.
func (c *Core) hasFree(h *head) bool {
	if h.pin != nil {
		_, free := c.freeSlotOf(h.pin, h.typ)
		return free
	}
	return c.index.HasFree(h.typ)
}

// take takes a free slot for a head.
func (c *Core) take(h *head) (slotindex.Ref, bool) {
	if h.pin == nil {
		return c.index.Take(h.typ)
	}
	ref, free := c.freeSlotOf(h.pin, h.typ)
	if free {
		c.index.TakeSlot(ref)
	}
	return ref, free
}

// peek returns a slot that is free for a job.
func (c *Core) peek(t slotindex.TypeID, j *job) (slotindex.Ref, bool) {
	if j != nil && j.request.pin != nil {
		return c.freeSlotOf(j.request.pin, t)
	}
	return c.index.Peek(t)
}

// nextHead returns the head that follows a placed one in its queues.
func (c *Core) nextHead(h *head, open bool) (head, bool) {
	if h.pin == nil {
		return c.best(h.typ, open)
	}
	for _, q := range h.pin.pinned.queues {
		if q.typ == h.typ && q.priority == h.priority {
			return c.headOf(q.first), true
		}
	}
	return head{}, false
}

// checkPins notes that a session may have lost the last slot for a pinned request.
func (c *Core) checkPins(s *session) {
	if len(s.pinned.queues) > 0 && !s.pinned.check {
		s.pinned.check = true
		c.pins.check = append(c.pins.check, s)
	}
}

// failPinned answers the pinned requests whose sessions have no slot for them any more,
// until the budget is used up.
func (c *Core) failPinned() {
	for until := c.budget(); len(c.pins.check) > 0; c.pins.check = c.pins.check[1:] {
		s := c.pins.check[0]
		for at := 0; at < len(s.pinned.queues); {
			q := s.pinned.queues[at]
			if c.offers(s, q.typ) {
				at++
				continue
			}
			for q.first != nil {
				if c.worked() >= until {
					return
				}
				c.work += jobWork
				c.answer(q.first, effect.AnswerFailed, nil, "the worker disconnected or removed its slots before the request started")
			}
		}
		s.pinned.check = false
	}
	c.pins.check = nil
}

// firstOf returns the request that a head stands for.
func (c *Core) firstOf(h *head) *job {
	if h.pin != nil {
		return c.pinQueueOf(h.pin, h.typ, h.priority).first
	}
	return c.types[h.typ].demand[h.priority].first
}

// checkPinned compares the queues of pinned requests with their counts and marks.
func (c *Core) checkPinned() error {
	pinned := make([]int32, len(c.types))
	for _, id := range c.sessionIDs() {
		s := c.sessions[id]
		for _, q := range s.pinned.queues {
			if q.first == nil {
				return fmt.Errorf("session %d has an empty queue of pinned requests", id)
			}
			pinned[q.typ] += int32(q.n)
			if err := q.checkOrder(); err != nil {
				return fmt.Errorf("a queue of pinned requests of session %d %w", id, err)
			}
			if _, free := c.freeSlotOf(s, q.typ); free && !s.pinned.dirty {
				return fmt.Errorf("session %d has a pinned request and a free slot, and is not dirty", id)
			}
			if !c.offers(s, q.typ) && !s.pinned.check {
				return fmt.Errorf("session %d has a pinned request and no slot for it", id)
			}
		}
	}
	for _, s := range c.pins.check { // of sessions that have ended
		for _, q := range s.pinned.queues {
			if c.sessions[s.id] != s {
				pinned[q.typ] += int32(q.n)
			}
		}
	}
	for t, n := range pinned {
		if have := c.types[t].pinned; have != n {
			return fmt.Errorf("type %d has %d pinned requests, counted %d", t, n, have)
		}
	}
	return nil
}
