package sim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// brought is an execution as a worker presents it to a dispatcher.
type brought struct {
	job       dispatcherd.JobID
	attempt   dispatcherd.Attempt
	from      contract.Fingerprint // of the session in which it was handed out
	to        contract.Fingerprint // the same with the number of the presentation
	execution int32                // -1 = it is not the worker's
	tale      uint32
	offer     offer
}

// mark is the fingerprint of a session's nonce.
func (c *conn) mark() contract.Fingerprint {
	return contract.Fingerprint(mix(0x6d61726b, uint64(c.number)+1) | 1)
}

// session is what the marks of one session's presentations have in common.
func session(m contract.Fingerprint) contract.Fingerprint { return m >> 16 }

// doubt is the last report that was sent from a seat. Until the next job comes it
// need not have been read.
type doubt struct {
	execution
	sent bool
}

// doubts keeps a report.
func (k *worker) doubts(e *execution, f frame) {
	if !k.plain && e.job > 0 {
		d := doubt{*e, true}
		d.report = f
		k.seats[e.seat].last = d
	}
}

// bringReport puts an execution back on its seat whose report may not have been
// read on the connection that is gone.
func (k *worker) bringReport(s *seat, c *conn) {
	last := s.last
	s.last = doubt{}
	if !last.sent || last.conn != c.number || last.job == c.guilty || s.execution >= 0 {
		return
	}
	w := k.world
	w.stats.Doubted++
	i := w.executions.take()
	e := &w.executions.all[i]
	gen, tale := e.gen+1, max(e.tale, last.tale)+1
	*e = last.execution
	e.gen, e.tale, e.next, e.live, e.over = gen, tale, 0, true, true
	w.executions.live++
	s.execution = i
}

// keepExecutions lets what ran on a connection that is gone go on without one.
func (k *worker) keepExecutions(c *conn) {
	w := k.world
	for n := range k.seats {
		k.bringReport(&k.seats[n], c)
		i := k.seats[n].execution
		if i < 0 {
			continue
		}
		e := &w.executions.all[i]
		if e.orphan || e.conn != c.number || e.job == c.guilty {
			continue
		}
		w.stats.Orphaned++
		e.orphan = true
		e.tale++
		e.asked = 0
		e.expiry = w.now + w.carry.window
		w.plan(task{at: e.expiry, kind: orphanOver, arg: i, life: e.tale})
	}
}

// keeps reports whether a worker has executions without a connection.
func (k *worker) keeps() bool {
	for n := range k.seats {
		if i := k.seats[n].execution; i >= 0 && k.world.executions.all[i].orphan {
			return true
		}
	}
	return false
}

// expire is the end of an orphan's time. While it is presented that is put off.
func (w *world) expire(i int32, tale uint32) {
	e := &w.executions.all[i]
	if e.tale != tale || !e.live || !e.orphan {
		return
	}
	k := w.workers[e.worker]
	again := task{at: w.now + 10*millisecond, kind: orphanOver, arg: i, life: tale}
	switch {
	case k.stopped:
		k.inbox = append(k.inbox, again)
	case k.conn != nil && k.conn.unwelcome:
		w.plan(again)
	default:
		w.stats.Expired++
		k.lose(i)
	}
}

// lose gives an orphan up: nobody wants to know its end any more.
func (k *worker) lose(i int32) {
	w := k.world
	e := &w.executions.all[i]
	e.orphan = false
	e.tale++
	s := &k.seats[e.seat]
	s.number = 0
	if !e.over && w.scale.zombies {
		return // its handler takes no notice
	}
	s.execution = -1
	w.dropExecution(i)
	if k.conn != nil && !k.conn.draining {
		k.announce(false)
	}
}

// bringAlong puts what goes on without a connection into the hello.
func (k *worker) bringAlong(c *conn) {
	w := k.world
	if k.plain {
		return
	}
	for n := range k.seats {
		s := &k.seats[n]
		if s.execution < 0 || !w.executions.all[s.execution].orphan {
			continue
		}
		e := &w.executions.all[s.execution]
		k.number++
		s.number = k.number
		e.asked = c.number + 1
		e.times++
		from := w.conns[e.began].mark()
		b := brought{e.job, e.attempt, from, from.WithGeneration(int(e.times)), s.execution, e.tale, offer{s.number, s.set, w.now}}
		if w.has(Resume) && w.carry.dice.chance(w.carry.bold) {
			b.attempt--
		}
		c.brought = append(c.brought, b)
	}
	if w.has(Resume) && w.carry.dice.chance(w.carry.bold) {
		k.bringAnothers(c)
	}
	if len(c.brought) == 0 {
		return
	}
	for _, b := range c.brought {
		c.offers = append(c.offers, b.offer)
	}
	w.stats.Presented += len(c.brought)
	c.unwelcome = true
	w.plan(task{at: w.now + 3*w.carry.patience/2, kind: workerGiveUp, who: k.id, life: k.life, arg: c.number})
}

// bringAnothers lets a worker present what another one executes, with the mark of
// a session of its own.
func (k *worker) bringAnothers(c *conn) {
	w := k.world
	o := w.workers[w.carry.dice.below(int64(len(w.workers)))]
	if o == k || len(c.brought) == 0 {
		return
	}
	for n := range o.seats {
		if i := o.seats[n].execution; i >= 0 && w.executions.all[i].job > 0 {
			x := &w.executions.all[i]
			k.number++
			mine := c.brought[0]
			c.brought = append(c.brought, brought{x.job, x.attempt, mine.from, mine.to, -1, 0, offer{k.number, mine.offer.set, w.now}})
			return
		}
	}
}

// convict loses the execution that ignored its cancel.
func (k *worker) convict(job dispatcherd.JobID) {
	for n := range k.seats {
		i := k.seats[n].execution
		if i < 0 || k.world.executions.all[i].job != job {
			continue
		}
		if k.world.scale.zombies {
			return // its handler takes no notice, and nobody hears of its end
		}
		k.seats[n].execution = -1
		k.world.dropExecution(i)
	}
}

// welcomed goes on with what the dispatcher took back and loses the rest.
func (k *worker) welcomed(c *conn) {
	w := k.world
	c.unwelcome = false
	goesOn := make([]bool, len(c.brought))
	for _, n := range c.resumed {
		goesOn[n] = true
	}
	for n := range c.brought {
		b := &c.brought[n]
		if b.execution < 0 {
			continue
		}
		e := &w.executions.all[b.execution]
		switch {
		case e.tale != b.tale || !e.live || !e.orphan:
		case goesOn[n] && b.attempt == e.attempt:
			k.goOn(c, b.execution)
		default:
			k.lose(b.execution)
		}
	}
	k.announce(false)
}

// goOn continues an execution on a new connection, or reports its end.
func (k *worker) goOn(c *conn, i int32) {
	e := &k.world.executions.all[i]
	e.orphan, e.conn = false, c.number
	e.tale++
	if !e.over {
		return
	}
	was, f := *e, e.report
	k.seats[e.seat].execution = -1
	k.world.dropExecution(i)
	k.answer(c, f)
	k.doubts(&was, f)
}

// giveUpWaiting hangs up on a dispatcher that does not say what goes on.
func (k *worker) giveUpWaiting(c *conn) {
	if k.conn != c || !c.unwelcome {
		return
	}
	k.hangUp()
	k.plan(workerDial, k.world.dice.span(second/1000, second/10))
}
