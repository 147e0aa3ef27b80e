package actor

import (
	"math"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// place restores the rule that no free slot is compatible with a waiting job. Only
// types in c.dirty can violate the rule. Each additional pass follows the
// preemption of a job, so there are at most as many additional passes as jobs that
// start.
func (c *Core) place() {
	c.placeUntil, c.unfinished = math.MaxInt, false
	for c.pass() || !c.unfinished && c.assignClaimed() {
		if c.worked() >= c.placeUntil {
			c.unfinished = true
			return
		}
	}
}

// pass places jobs once. It reports whether a job was preempted and may be placed
// on another slot.
func (c *Core) pass() (again bool) {
	if len(c.dirty)+len(c.pins.dirty) == 0 || c.draining {
		return false
	}
	c.heads = c.heads[:0]
	open := c.queuedOpen()
	c.keepDirty(func(t slotindex.TypeID) {
		if h, ok := c.best(t, open); ok {
			c.heads = append(c.heads, h)
		}
	})
	c.keepPins(func(h head) { c.heads = append(c.heads, h) })
	c.heads.init()
	if c.placeUntil == math.MaxInt {
		c.placeUntil = c.budget() // the step that finds the heads of all dirty types also places some jobs
	}
	ended := c.round(open, c.windowEnd(open))
	if c.unfinished {
		return c.wasPreempted()
	}
	c.keepDirty(func(t slotindex.TypeID) {
		if reason := c.waitReason(t, ended); reason >= 0 {
			c.logWait(t, reason)
		}
	})
	return c.wasPreempted()
}

// round places heads until none is left or until the best head must wait. The best
// head waits for a fetch that returns its candidate, or for room in a claim. No
// other job passes the best head meanwhile. A job that arrived at end or later
// waits for the fetch as well. round returns the position of the reason in
// WaitReasons, or -1 if no head must wait.
func (c *Core) round(open bool, end int64) int {
	for placed := false; len(c.heads) > 0; placed = true {
		if placed && c.worked() >= c.placeUntil {
			c.unfinished = true
			return -1
		}
		h, n := c.heads[0], len(c.decisions)
		ref, free := c.peek(h.Type, h.request)
		switch {
		case h.arrival >= end:
			c.stats.Misses++
			return waitFetch
		case !free && c.preemptFor(&h):
			if c.claims.preempted {
				return -1 // the preempted job may rank before the remaining heads
			}
		case !free:
			c.types[h.Type].urgent = c.types[h.Type].urgent && h.pin() != nil
			c.heads.pop()
			c.work += jobWork // if many heads have no slot, the next step makes their types clean
			continue
		case h.mode == dispatcherd.OnDemand:
			c.index.Take(ref)
			c.startRequest(&h, ref)
		case h.bound:
			c.stats.Misses++
			return waitFetch
		case len(c.claims.next) >= c.claimRoom():
			return waitClaims
		default:
			c.placeCandidate(h, ref)
		}
		if next, ok := c.nextHead(&h, open); ok {
			c.heads.replaceTop(next)
		} else {
			c.heads.pop()
		}
		if len(c.heads) > 0 {
			c.logRunnerUp(n, &c.heads[0])
			c.countPassed(&h, &c.heads[0])
		}
	}
	return -1
}

// windowEnd limits placements while a fetch takes longer than Patience. It returns an
// arrival: no job that arrived then or later may be placed. This arrival is one
// overtaking window after the earliest unread row of the types with free slots. Jobs that
// arrived earlier may pass unread rows, because the window allows it. So a slow fetch
// delays only decisions that would violate the window.
func (c *Core) windowEnd(open bool) int64 {
	end := int64(math.MaxInt64)
	window, bounded := c.cfg.Weights.Window()
	if !open || !bounded || !c.backlog.FetchLate() {
		return end
	}
	for _, t := range c.dirty {
		if first, ok := c.backlog.FirstUnread(t); ok {
			end = min(end, int64(c.now)-c.backlog.AgeMS(first)+window.Milliseconds())
		}
	}
	return end
}

// keepDirty calls f for every dirty type that has waiting jobs and either a free
// slot or a new request. The other types become clean.
func (c *Core) keepDirty(f func(slotindex.TypeID)) {
	kept := c.dirty[:0]
	c.work += len(c.dirty)
	for _, t := range c.dirty {
		k := c.types[t]
		waits := c.waits(t)
		if !waits || !c.index.HasFree(t) && !k.urgent {
			c.isDirty.Set(t, false)
			k.urgent = false
			if waits {
				c.logWait(t, c.waitReason(t, waitBusy))
			}
			continue
		}
		kept = append(kept, t)
		f(t)
	}
	c.dirty = kept
}

// queuedOpen reports whether queued jobs may be placed. The conditions are: the
// lease is valid, Postgres answers claims, and not too many ended attempts wait to
// be recorded. Otherwise only requests are placed.
func (c *Core) queuedOpen() bool {
	return !c.disowned && !c.claims.breaker.Open(c.now) && c.ends.unrecorded < c.cfg.Limits.Unfinished
}

// claimRoom returns how many rows the next claim may have. After a failed claim the
// number is one: one row is sufficient to find out whether Postgres answers again.
// Requests cannot use slots that are reserved for a claim without an answer.
func (c *Core) claimRoom() int {
	if c.claims.breaker.Failed() {
		return 1
	}
	return c.cfg.Limits.ClaimBatch
}

// best returns the best head among the lanes and request queues of a type. It
// examines at most three heads per priority and duration class.
func (c *Core) best(t slotindex.TypeID, queued bool) (best head, found bool) {
	for _, q := range c.types[t].startable() {
		if h := c.headOf(q.requests[0]); !found || h.before(&best) {
			best, found = h, true
		}
	}
	if !queued || c.isPaused(t) {
		return best, found
	}
	for lane := range c.backlog.Waiting(t) {
		key, bound, ok := c.backlog.Head(lane)
		if !ok {
			continue
		}
		if h := c.rowHead(lane, key); !found || h.before(&best) {
			best, found = h, true
			best.bound = bound
		}
	}
	return best, found
}

// rowHead returns the head for a row of a lane. Its age is the one that counts in comparisons.
func (c *Core) rowHead(r backlog.Lane, k contract.Key) head {
	age := c.backlog.AgeMS(k) - c.penaltyMS(r.NonLocal)
	return head{
		Lane: r, score: c.score(dispatcherd.Queued, r, age).Total(), arrival: int64(c.now) - age, number: int64(k.ID), mode: dispatcherd.Queued,
	}
}

// headOf returns the head for a job in hand, for comparisons.
func (c *Core) headOf(j *job) head {
	age := c.ageMS(j)
	h := head{
		Lane: j.Lane, score: c.score(j.mode, j.Lane, age).Total(), arrival: int64(c.now) - age, number: int64(j.id), mode: j.mode,
	}
	if j.mode == dispatcherd.OnDemand {
		h.number, h.request = -h.number, j
	}
	return h
}

// placeCandidate handles the first candidate of a lane. It reserves a free slot for the
// candidate and adds the candidate to the next claim.
func (c *Core) placeCandidate(h head, ref slotindex.Ref) {
	key, batch := c.backlog.Pop(h.Lane)
	if c.jobs[key.ID] != nil {
		// An older attempt of the row is still being recorded, so the fetch read the lane
		// before that attempt ended. The lane is read again.
		c.backlog.Rescan(h.Lane)
		return
	}
	if _, aside := c.whyAside(key.ID); aside {
		return
	}
	j := c.newJob()
	j.id, j.Lane, j.mode = key.ID, h.Lane, dispatcherd.Queued
	j.row = rowData{key: key, batch: batch}
	c.index.Take(ref)
	c.assign(j, ref)
	c.keep(j)
	c.move(j, onReserve)
	c.claims.next = append(c.claims.next, j)
}

// startRequest sends the first request of a queue to a slot that was taken for it. A
// request has no row, so it needs no claim.
func (c *Core) startRequest(h *head, ref slotindex.Ref) {
	j := h.request
	c.assign(j, ref)
	j.attempt++
	c.move(j, onStart)
	s := c.slots[j.slot]
	c.emit(&effect.Started{Job: j.id, Slot: c.index.SlotID(j.slot), Worker: s.session.worker})
}

// assign assigns to a job a slot that was taken for it, and stores the reason.
func (c *Core) assign(j *job, ref slotindex.Ref) {
	j.slot = ref
	c.slots[ref].job = j
	j.terms = c.score(j.mode, j.Lane, c.ageMS(j))
	j.placedAt = c.now
	c.stats.Placed++
	c.work += jobWork
	c.logPlacement(j)
}

// before reports whether h ranks before o. The job with the higher score ranks
// first; among equals, the older job, then the job with the smaller id without
// its sign, then the request.
func (h *head) before(o *head) bool {
	if h.score != o.score {
		return h.score > o.score
	}
	if h.arrival != o.arrival {
		return h.arrival < o.arrival
	}
	if h.number != o.number {
		return h.number < o.number
	}
	return h.mode > o.mode
}

func (h headHeap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h headHeap) replaceTop(n head) {
	h[0] = n
	h.down(0)
}

func (h *headHeap) pop() {
	old := *h
	n := len(old) - 1
	old[0] = old[n]
	*h = old[:n]
	h.down(0)
}

func (h headHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if r := child + 1; r < len(h) && h[r].before(&h[child]) {
			child = r
		}
		if !h[child].before(&h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// logWait records that the best job of a type does not start in this step. It
// writes a log entry if the reason is new or if the reason has not held for
// waitLogPause.
func (c *Core) logWait(t slotindex.TypeID, reason int) {
	w := &c.types[t].reasons
	known := w.held != 0 && w.logged == int8(reason) && c.now-w.last[reason] < waitLogPause
	w.last[reason] = c.now
	w.held |= 1 << reason
	w.periods.add(int8(reason), c.now)
	if known || c.waitLogs >= waitLogsPerStep {
		return
	}
	c.waitLogs++
	w.logged = int8(reason)
	d := c.logDecision(DecisionWaiting)
	d.Type, d.Reasons = c.index.Name(t), 1<<reason
	if h, ok := c.best(t, true); ok {
		d.Job, d.Mode, d.Priority, d.Score = h.job(), h.mode, h.Priority, h.score
	}
}

// waitReason returns why a round did not place the best waiting job of a type. The
// parameter round is the result of that round.
func (c *Core) waitReason(t slotindex.TypeID, round int) int {
	switch {
	case !c.index.HasFree(t):
		if c.index.Capacity(t) == 0 {
			return waitNoCapacity
		}
		return waitBusy
	case c.disowned:
		return waitFenced
	case c.claims.breaker.Open(c.now):
		return waitCircuitOpen
	case c.ends.unrecorded >= c.cfg.Limits.Unfinished:
		return waitUnrecorded
	}
	return round
}

// asideReason returns why a row is set aside; "" = it is not. known says that the row is of
// type t.
func (c *Core) asideReason(id dispatcherd.JobID, t slotindex.TypeID, known bool) string {
	reason, aside := c.whyAside(id)
	if !aside && known && c.isPaused(t) {
		return "Postgres has just refused to claim other jobs of the type"
	}
	return reason
}

// keepPins calls f for the head of each queue of pinned requests for which its session has a
// free slot. Sessions without one become clean.
func (c *Core) keepPins(f func(head)) {
	kept := c.pins.dirty[:0]
	for _, s := range c.pins.dirty {
		s.pinsDirty = false
		for _, q := range s.pinned {
			if _, free := c.freeSlotOf(s, q.lane.Type); free && !c.types[q.lane.Type].pause.requests() {
				s.pinsDirty = true
				f(c.headOf(q.requests[0]))
			}
		}
		if s.pinsDirty {
			kept = append(kept, s)
		}
	}
	clear(c.pins.dirty[len(kept):])
	c.pins.dirty = kept
}

// peek returns the most specialised slot that is free for a request, or for a row of a type if j is nil.
func (c *Core) peek(t slotindex.TypeID, j *job) (slotindex.Ref, bool) {
	if j != nil && j.request.pin != nil {
		return c.freeSlotOf(j.request.pin, t)
	}
	return c.index.Peek(t)
}

// countPassed counts a placed job if the next one is older and would have preceded it without expected durations.
func (c *Core) countPassed(placed, next *head) {
	if c.durations == nil || next.arrival >= placed.arrival {
		return
	}
	if placed.score-c.brevity(placed.Lane) < next.score-c.brevity(next.Lane) {
		c.stats.Passed++
	}
}

// nextHead returns the head that follows a placed one in its queues.
func (c *Core) nextHead(h *head, open bool) (head, bool) {
	pin := h.pin()
	if pin == nil {
		return c.best(h.Type, open)
	}
	if q := pin.pinned.find(h.Lane); q != nil {
		return c.headOf(q.requests[0]), true
	}
	return head{}, false
}

// pin returns the session of a pinned request, or nil.
func (h *head) pin() *session {
	if h.request == nil {
		return nil
	}
	return h.request.request.pin
}
