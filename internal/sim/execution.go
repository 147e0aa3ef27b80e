package sim

import "github.com/dispatcherd/dispatcherd"

// execution is one run of a job by a worker.
type execution struct {
	job      dispatcherd.JobID
	attempt  dispatcherd.Attempt
	gen      uint32 // grows when the end is moved and when the record is used again
	next     int32  // next live execution of the same row plus one; free list
	conn     int32
	worker   int16
	slot     int16
	live     bool
	stopping bool // it was told to stop

	detached    bool   // its connection is gone, and the worker keeps it to bring it along
	ended       bool   // an orphan that has ended: its report waits
	binding     uint32 // grows when it loses or gets a connection
	firstConn   int32  // the connection it was handed out on
	brokenConn  int32  // a connection on which it went on for the dispatcher, and which that saw break, plus one
	offerCount  int32  // how often it was presented
	offeredConn int32  // the connection it was presented on last plus one; 0 = none yet
	expiry      moment // of an orphan: when the worker gives it up
	report      frame
}

type executions struct {
	all  []execution
	free int32
	live int
}

// execute begins a job on the seat it was sent to.
func (k *worker) execute(c *conn, f *frame) {
	w := k.world
	s := k.slotOf(f.number)
	if s == nil { // it was taken off line while the job was on its way
		k.returnJob(c, f.job, f.attempt)
		return
	}
	if s.execution >= 0 {
		w.violate("job %d was sent to slot %d of worker %d, which executes job %d",
			f.job, f.number, k.id, w.executions.all[s.execution].job)
		return
	}
	if !w.judge.executionStarted(k, s, f) {
		return
	}
	x := &w.executions
	i := x.take()
	e := &x.all[i]
	*e = execution{job: f.job, attempt: f.attempt, gen: e.gen + 1, binding: e.binding + 1, conn: c.number, firstConn: c.number, worker: k.id, live: true}
	for n := range k.slots {
		if &k.slots[n] == s {
			e.slot = int16(n)
		}
	}
	s.execution, s.lastReport = i, sentReport{} // its last report was read
	x.live++
	w.stats.Executions++
	if r := w.table.row(f.job); r != nil {
		e.next, r.execution = r.execution, i+1
	}
	w.plan(task{at: w.now + w.random.span(w.scale.jobMin, w.scale.jobMax), kind: executionEnd, arg: i, incarnation: e.gen})
	if w.random.chance(50) {
		w.write(c, &c.up, frame{kind: frameReport, job: f.job, attempt: f.attempt, ok: w.random.below(2) == 0})
	}
}

// take returns a record that is not in use.
func (x *executions) take() int32 {
	i := x.free
	if i < 0 {
		x.all = append(x.all, execution{})
		return int32(len(x.all) - 1)
	}
	x.free = x.all[i].next
	return i
}

// stopExecution does as it is told, soon, or not at all.
func (w *world) stopExecution(k *worker, f *frame) {
	for n := range k.slots {
		i := k.slots[n].execution
		if i < 0 {
			continue
		}
		e := &w.executions.all[i]
		if e.job == f.job && e.attempt == f.attempt && !e.stopping && w.random.below(5) > 0 {
			e.stopping = true
			e.gen++
			w.plan(task{at: w.now + w.random.span(100, 20*millisecond), kind: executionEnd, arg: i, incarnation: e.gen})
		}
	}
}

// dropExecution forgets an execution.
func (w *world) dropExecution(i int32) {
	x := &w.executions
	e := &x.all[i]
	if r := w.table.row(e.job); r != nil {
		for at := &r.execution; *at != 0; at = &x.all[*at-1].next {
			if *at == i+1 {
				*at = e.next
				break
			}
		}
	}
	e.gen++
	e.live = false
	e.next, x.free = x.free, i
	x.live--
}

// endExecution is the end of a handler: its seat is free, and the result goes
// to whoever sent the job, if the connection is still there.
func (w *world) endExecution(i int32, gen uint32) {
	e := w.executions.all[i]
	if e.gen != gen || !e.live {
		return
	}
	k := w.workers[e.worker]
	if k.stopped {
		k.inbox = append(k.inbox, task{kind: executionEnd, arg: i, incarnation: gen})
		return
	}
	if e.detached {
		x := &w.executions.all[i]
		x.ended, x.report = true, w.verdict(&e)
		return
	}
	k.slots[e.slot].execution = -1
	w.dropExecution(i)
	c := w.conns[e.conn]
	if k.conn == c && !c.workEnd.closed {
		w.reportResult(k, c, &e)
	} else if k.conn != nil && !k.conn.draining {
		k.announce(false)
	}
}

// verdict is how an execution ends.
func (w *world) verdict(e *execution) frame {
	d := &w.random
	f := frame{job: e.job, attempt: e.attempt}
	switch {
	case e.stopping && d.below(3) > 0:
	case d.chance(w.scale.returning):
		f.returned = true
	case d.chance(w.scale.failing):
		f.permanent = d.chance(500)
		f.retryAfter = moment(d.below(2)) * w.random.span(millisecond, second)
	default:
		f.ok = true
		if r := w.table.row(e.job); r != nil {
			r.succeeded = max(r.succeeded, e.attempt)
		}
	}
	return f
}

func (w *world) reportResult(k *worker, c *conn, e *execution) {
	d := &w.random
	f := w.verdict(e)
	if d.chance(w.scale.misreported) { // a word about an attempt of before
		k.answer(c, frame{job: e.job, attempt: e.attempt - 1, ok: true})
	}
	k.answer(c, f)
	k.keepReport(e, f)
	if d.chance(w.scale.misreported) { // and one too many
		k.answer(c, f)
	}
	if d.chance(w.scale.misreported) { // and one about somebody else's
		w.reportOther(k, c)
	}
}

// meddle lets a worker speak of a job that another one executes.
func (w *world) reportOther(k *worker, c *conn) {
	o := w.workers[w.random.below(int64(len(w.workers)))]
	if o == k || o.host != k.host {
		return
	}
	for i := range o.slots {
		if e := o.slots[i].execution; e >= 0 {
			x := &w.executions.all[e]
			k.answer(c, frame{job: x.job, attempt: x.attempt, ok: true})
			return
		}
	}
}
