package sim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// resumeOffer is an execution that a worker offers to resume.
type resumeOffer struct {
	job       dispatcherd.JobID
	attempt   dispatcherd.Attempt
	from      contract.Fingerprint // fingerprint of the session in which the job was sent
	to        contract.Fingerprint // from, with the generation of the offer
	execution int32                // -1 = another worker's
	binding   uint32
	slot      announcedSlot
}

// fingerprint is the fingerprint of the session's nonce.
func (c *conn) fingerprint() contract.Fingerprint {
	return contract.Fingerprint(mix(0x6d61726b, uint64(c.number)+1) | 1)
}

// session returns the part of a fingerprint that is equal in all generations.
func session(m contract.Fingerprint) contract.Fingerprint { return m >> 16 }

// sentReport is the last report that was sent for a slot. It is unacknowledged
// until the next job arrives on the slot.
type sentReport struct {
	execution
	sent bool
}

// keepReport stores a report until it is known to be read.
func (k *worker) keepReport(e *execution, f frame) {
	if !k.notResumable && e.job > 0 {
		d := sentReport{*e, true}
		d.report = f
		k.slots[e.slot].lastReport = d
	}
}

// reofferReport restores an execution whose report was possibly lost with the
// connection.
func (k *worker) reofferReport(s *workerSlot, c *conn) {
	last := s.lastReport
	s.lastReport = sentReport{}
	if !last.sent || last.conn != c.number || last.job == c.ignoredCancel || s.execution >= 0 {
		return
	}
	w := k.world
	w.stats.Reoffered++
	i := w.executions.take()
	e := &w.executions.all[i]
	gen, binding := e.gen+1, max(e.binding, last.binding)+1
	*e = last.execution
	e.gen, e.binding, e.next, e.live, e.ended = gen, binding, 0, true, true
	w.executions.live++
	s.execution = i
}

// detachExecutions keeps the executions of a connection that is gone.
func (k *worker) detachExecutions(c *conn) {
	w := k.world
	for n := range k.slots {
		k.reofferReport(&k.slots[n], c)
		i := k.slots[n].execution
		if i < 0 {
			continue
		}
		e := &w.executions.all[i]
		if e.detached || e.conn != c.number || e.job == c.ignoredCancel {
			continue
		}
		w.stats.Detached++
		e.detached = true
		e.binding++
		e.offeredConn = 0
		e.expiry = w.now + w.detach.window
		if w.remote.keep > 0 {
			e.expiry = max(w.now, c.link.until)
		}
		w.plan(task{at: e.expiry, kind: detachedExpiry, arg: i, incarnation: e.binding})
	}
}

// hasDetached reports whether the worker has detached executions.
func (k *worker) hasDetached() bool {
	for n := range k.slots {
		if i := k.slots[n].execution; i >= 0 && k.world.executions.all[i].detached {
			return true
		}
	}
	return false
}

// expireDetached ends the resume window of an execution. The end is postponed
// while an offer is undecided.
func (w *world) expireDetached(i int32, binding uint32) {
	e := &w.executions.all[i]
	if e.binding != binding || !e.live || !e.detached {
		return
	}
	k := w.workers[e.worker]
	again := task{at: w.now + 10*millisecond, kind: detachedExpiry, arg: i, incarnation: binding}
	switch {
	case k.stopped:
		k.inbox = append(k.inbox, again)
	case k.conn != nil && k.conn.awaitsWelcome && w.remote.keep == 0:
		w.plan(again)
	default:
		w.stats.Expired++
		k.dropDetached(i)
	}
}

// dropDetached gives up a detached execution. Its result is no longer reported.
func (k *worker) dropDetached(i int32) {
	w := k.world
	e := &w.executions.all[i]
	e.detached = false
	e.binding++
	s := &k.slots[e.slot]
	s.number = 0
	if !e.ended && w.scale.keepRunning {
		return // the handler continues
	}
	s.execution = -1
	w.dropExecution(i)
	if k.conn != nil && !k.conn.draining {
		k.announce(false)
	}
}

// addOffers adds the detached executions to the hello of a connection.
func (k *worker) addOffers(c *conn) {
	w := k.world
	if k.notResumable {
		return
	}
	for n := range k.slots {
		s := &k.slots[n]
		if s.execution < 0 || !w.executions.all[s.execution].detached {
			continue
		}
		e := &w.executions.all[s.execution]
		k.number++
		s.number = k.number
		e.offeredConn = c.number + 1
		e.offerCount++
		from := w.conns[e.firstConn].fingerprint()
		b := resumeOffer{
			e.job,
			e.attempt,
			from,
			from.WithGeneration(int(e.offerCount)),
			s.execution,
			e.binding,
			announcedSlot{s.number, s.set, w.now},
		}
		if w.has(Resume) && w.detach.random.chance(w.detach.forged) {
			b.attempt--
		}
		c.resumeOffers = append(c.resumeOffers, b)
	}
	if w.has(Resume) && w.detach.random.chance(w.detach.forged) {
		k.addForgedOffer(c)
	}
	if len(c.resumeOffers) == 0 {
		return
	}
	for _, b := range c.resumeOffers {
		c.slots = append(c.slots, b.slot)
	}
	w.stats.Offered += len(c.resumeOffers)
	c.awaitsWelcome = true
	w.plan(task{at: w.now + 3*w.detach.handshake/2, kind: workerHandshakeTimeout, who: k.id, incarnation: k.incarnation, arg: c.number})
}

// addForgedOffer offers an execution of another worker under a fingerprint of
// this worker.
func (k *worker) addForgedOffer(c *conn) {
	w := k.world
	o := w.workers[w.detach.random.below(int64(len(w.workers)))]
	if o == k || len(c.resumeOffers) == 0 {
		return
	}
	for n := range o.slots {
		if i := o.slots[n].execution; i >= 0 && w.executions.all[i].job > 0 {
			x := &w.executions.all[i]
			k.number++
			mine := c.resumeOffers[0]
			c.resumeOffers = append(c.resumeOffers,
				resumeOffer{x.job, x.attempt, mine.from, mine.to, -1, 0, announcedSlot{k.number, mine.slot.set, w.now}})
			return
		}
	}
}

// dropIgnored drops the execution that ignored its cancel.
func (k *worker) dropIgnored(job dispatcherd.JobID) {
	for n := range k.slots {
		i := k.slots[n].execution
		if i < 0 || k.world.executions.all[i].job != job {
			continue
		}
		if k.world.scale.keepRunning {
			return // the handler continues, and its result is not reported
		}
		k.slots[n].execution = -1
		k.world.dropExecution(i)
	}
}

// welcomed continues the accepted executions and drops the others.
func (k *worker) welcomed(c *conn) {
	w := k.world
	c.awaitsWelcome = false
	resumed := make([]bool, len(c.resumeOffers))
	for _, n := range c.resumed {
		resumed[n] = true
	}
	for n := range c.resumeOffers {
		b := &c.resumeOffers[n]
		if b.execution < 0 {
			continue
		}
		e := &w.executions.all[b.execution]
		switch {
		case e.binding != b.binding || !e.live || !e.detached:
			if resumed[n] && w.remote.keep > 0 { // its time is over
				w.write(c, &c.up, frame{kind: frameRemove, number: b.slot.number})
				k.returnJob(c, b.job, b.attempt)
			}
		case resumed[n] && b.attempt == e.attempt:
			k.continueOn(c, b.execution)
		default:
			k.dropDetached(b.execution)
		}
	}
	k.announce(false)
}

// continueOn attaches an execution to a new connection, or reports its result
// if it has ended.
func (k *worker) continueOn(c *conn, i int32) {
	e := &k.world.executions.all[i]
	e.detached, e.conn = false, c.number
	e.binding++
	if !e.ended {
		return
	}
	was, f := *e, e.report
	k.slots[e.slot].execution = -1
	k.world.dropExecution(i)
	k.answer(c, f)
	k.keepReport(&was, f)
}

// handshakeTimeout disconnects if the welcome has not arrived.
func (k *worker) handshakeTimeout(c *conn) {
	if k.conn != c || !c.awaitsWelcome {
		return
	}
	k.hangUp()
	k.plan(workerDial, k.world.random.span(second/1000, second/10))
}
