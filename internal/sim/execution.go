package sim

import "github.com/dispatcherd/dispatcherd"

// An execution is one run of a job by a worker.
type execution struct {
	job      dispatcherd.JobID
	attempt  dispatcherd.Attempt
	gen      uint32 // grows when the end is planned anew and when the record is reused
	next     int32  // next live execution of the same row plus one; or the free list
	conn     int32
	worker   int16
	slot     int16
	live     bool
	stopping bool // it was told to stop

	detached    bool   // its connection is gone, and the worker keeps it
	ended       bool   // detached and ended; its report is unsent
	binding     uint32 // grows when it loses or gets a connection
	firstConn   int32  // connection on which the job was sent
	brokenConn  int32  // connection on which it was resumed and which the dispatcher saw break, plus one
	offerCount  int32  // number of resume offers
	offeredConn int32  // connection of the last resume offer plus one; 0 = none
	expiry      moment // of a detached execution: end of the resume window
	report      frame
}

type executions struct {
	all  []execution
	free int32
	live int
}

// execute begins a job on its slot.
func (k *worker) execute(c *conn, f *frame) {
	w := k.world
	s := k.slotOf(f.number)
	if s == nil { // the slot was removed while the job was in flight
		k.returnJob(c, f.job, f.attempt)
		return
	}
	if s.execution >= 0 {
		w.violate("job %d was sent to slot %d of worker %d, which already executes job %d",
			f.job, f.number, k.id, w.executions.all[s.execution].job)
		return
	}
	if !w.judge.executionStarted(k, s, f) {
		return
	}
	x := &w.executions
	i := x.take()
	e := &x.all[i]
	*e = execution{
		job:       f.job,
		attempt:   f.attempt,
		gen:       e.gen + 1,
		binding:   e.binding + 1,
		conn:      c.number,
		firstConn: c.number,
		worker:    k.id,
		live:      true,
	}
	for n := range k.slots {
		if &k.slots[n] == s {
			e.slot = int16(n)
		}
	}
	s.execution, s.lastReport = i, sentReport{} // a new job acknowledges the last report
	x.live++
	w.stats.Executions++
	if r := w.job(f.job); r != nil {
		e.next, r.execution = r.execution, i+1
	}
	w.plan(task{at: w.now + w.random.span(w.scale.jobMin, w.scale.jobMax), kind: executionEnd, arg: i, incarnation: e.gen})
	if w.random.chance(50) {
		w.write(c, &c.up, frame{kind: frameReport, job: f.job, attempt: f.attempt, ok: w.random.below(2) == 0})
	}
	if f.job > 0 && w.spawns() {
		w.write(c, &c.up, frame{kind: frameSpawn, job: f.job, attempt: f.attempt})
	}
}

// take returns an unused record.
func (x *executions) take() int32 {
	i := x.free
	if i < 0 {
		x.all = append(x.all, execution{})
		return int32(len(x.all) - 1)
	}
	x.free = x.all[i].next
	return i
}

// stopExecution stops an execution after a short time, or ignores the request.
func (w *world) stopExecution(k *worker, f *frame) {
	for n := range k.slots {
		i := k.slots[n].execution
		if i < 0 {
			continue
		}
		e := &w.executions.all[i]
		if e.job == f.job && e.attempt == f.attempt && !e.stopping && (w.random.below(5) > 0 || w.remote.keep > 0) {
			e.stopping = true
			e.gen++
			w.plan(task{at: w.now + w.random.span(100, 20*millisecond), kind: executionEnd, arg: i, incarnation: e.gen})
		}
	}
}

// dropExecution removes an execution.
func (w *world) dropExecution(i int32) {
	x := &w.executions
	e := &x.all[i]
	if r := w.job(e.job); r != nil {
		for at := &r.execution; *at != 0; at = &x.all[*at-1].next {
			if *at == i+1 {
				*at = e.next
				break
			}
		}
	}
	e.gen++
	e.live = false
	if e.job < 0 {
		w.served(w.conns[e.firstConn].request(e.job))
	}
	e.next, x.free = x.free, i
	x.live--
}

// endExecution ends a handler. Its slot becomes free, and the result is
// reported if the connection still exists.
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

// verdict draws the result of an execution.
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
		if r := w.job(e.job); r != nil {
			r.succeeded = max(r.succeeded, e.attempt)
		}
	}
	return f
}

func (w *world) reportResult(k *worker, c *conn, e *execution) {
	d := &w.random
	f := w.verdict(e)
	if d.chance(w.scale.misreported) { // a report about an earlier attempt
		k.answer(c, frame{job: e.job, attempt: e.attempt - 1, ok: true})
	}
	k.answer(c, f)
	k.keepReport(e, f)
	if d.chance(w.scale.misreported) { // a repeated report
		k.answer(c, f)
	}
	if d.chance(w.scale.misreported) { // a report about a job of another worker
		w.reportOther(k, c)
	}
}

// reportOther reports a result for a job that another worker executes.
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
