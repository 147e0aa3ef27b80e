package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// execution is one job on one slot, from the job frame to its report.
//
//	running ──► ended ──► reported            the usual way
//	   └─ orphaned ──► resumed on the next connection, or lost
//
// Fields below the line are guarded by the worker's mutex.
type execution struct {
	w       *Worker
	slot    *slot
	job     Job
	handler Handler
	life    life
	done    workerproto.Done // the report of most; here it needs no memory of its own

	conn    *workerproto.Conn // to report on; nil while orphaned
	session string            // nonce of the connection on which it began: what proves that it was handed out here
	times   int               // how often it was presented
	asked   bool              // it was presented, and the dispatcher has not answered
	late    bool              // its time as an orphan was over meanwhile
	lost    bool              // nobody wants the report any more
	report  workerproto.WorkerFrame
	since   int         // the worker's era in which it was sent
	expiry  *time.Timer // of an orphan
}

// begin starts executions, and gives back jobs whose slot has gone.
func (w *Worker) begin(c *workerproto.Conn, frames []workerproto.DispatcherFrame) {
	var refused []*workerproto.Release
	w.mu.Lock()
	for _, f := range frames {
		f, ok := f.(*workerproto.Job)
		if !ok {
			continue
		}
		e := &execution{w: w, conn: c, session: c.Session(), life: life{timeout: f.Timeout}, job: Job{
			ID: f.Job, Attempt: f.Attempt, Slot: f.Slot, Type: f.Type, Mode: f.Mode,
			Payload: f.Payload, Timeout: f.Timeout, Age: f.Age,
		}}
		e.job.run = e
		if reason := w.takeLocked(e); reason != "" {
			refused = append(refused, &workerproto.Release{Execution: f.Execution, Reason: reason})
			continue
		}
		w.hands.queue = append(w.hands.queue, e)
		w.callLocked()
	}
	w.mu.Unlock()
	for _, r := range refused {
		c.Send(r)
	}
}

// takeLocked puts e on its slot; otherwise it says why not.
func (w *Worker) takeLocked(e *execution) (refusal string) {
	sl := w.slots[e.job.Slot]
	e.handler = w.handlers[e.job.Type]
	switch {
	case w.draining:
		return "the worker stops"
	case sl == nil || sl.removed:
		return "the slot is gone"
	case sl.run != nil:
		return "the slot is busy"
	case e.handler == nil:
		return "the worker has no handler for the type"
	}
	e.slot = sl
	w.dropLocked(sl) // its last report was read
	sl.run = e
	w.busy++
	return ""
}

// execute runs the handler and reports. The deferred part also runs when the
// handler panics or ends its goroutine; then another hand takes over.
func (e *execution) execute() {
	var result any
	returned := false
	err := errors.New("the handler ended its goroutine")
	defer func() {
		if v := recover(); v != nil {
			result, err, returned = nil, fmt.Errorf("panic: %v\n%s", v, debug.Stack()), true
		}
		e.end(result, err)
		if !returned {
			e.w.mu.Lock()
			e.w.callLocked()
			e.w.mu.Unlock()
		}
	}()
	e.life.begin()
	result, err = e.handler(&e.life, &e.job)
	returned = true
	if err == nil {
		return
	}
	if end := e.life.Err(); end != nil && errors.Is(err, end) {
		err = context.Cause(&e.life) // says more than "context canceled"
	}
}

// end frees the slot, then reports: a dispatcher that has read the report may
// send the next job at once.
func (e *execution) end(result any, err error) {
	report := e.verdict(result, err)
	w := e.w
	w.mu.Lock()
	c := e.conn
	if c == nil && !e.lost {
		e.report = report // kept for the next connection; the slot stays taken
		w.mu.Unlock()
		return
	}
	w.freeLocked(e)
	if !e.lost {
		sign(report, c.Session())
		w.keepLocked(e, report)
	}
	switch {
	case e.lost:
	case c.Queue(report):
		w.hands.unsent = c
	default:
		w.mu.Unlock()
		c.Send(report) // waits while too many wait already
		w.mu.Lock()
	}
	room := e.lost || e.slot.removed // which counted until now (see roomLocked): another one may take its place
	w.countOutLocked()
	w.mu.Unlock()
	if room {
		w.announce()
	}
}

// freeLocked takes e off its slot.
func (w *Worker) freeLocked(e *execution) {
	e.life.over()
	if e.expiry != nil {
		e.expiry.Stop()
	}
	if e.slot.run == e {
		e.slot.run = nil
	}
	w.forgetLocked(e.slot)
}

// countOutLocked counts an execution out, after its report was queued.
func (w *Worker) countOutLocked() {
	if w.busy--; w.busy == 0 && w.draining {
		w.quietLocked()
	}
}

// verdict is the report that follows from what the handler returned.
func (e *execution) verdict(result any, err error) workerproto.WorkerFrame {
	name := e.job.named()
	if err == nil {
		var raw []byte
		if raw, err = encode(result); err == nil && raw != nil && !e.fits(raw) {
			err = fmt.Errorf("a result of %d bytes is too long for a frame", len(raw))
		}
		if err == nil {
			e.done = workerproto.Done{Execution: name, Result: raw}
			return &e.done
		}
		err = Permanent(err)
	}
	if cause := e.life.cause(); errors.Is(cause, ErrStopping) {
		return &workerproto.Release{Execution: name, Reason: cause.Error()}
	}
	fail := &workerproto.Fail{Execution: name, Error: err.Error()}
	if delayed, ok := errors.AsType[delayedError](err); ok {
		fail.RetryAfter = min(max(delayed.delay, 0), 365*24*time.Hour)
	}
	var final permanentError
	fail.Permanent = errors.As(err, &final) || errors.Is(err, ErrCancelled)
	return fail
}

// name is how the execution is presented.
func (e *execution) name() workerproto.Execution {
	return workerproto.Execution{Job: e.job.ID, Attempt: e.job.Attempt, Session: e.session}
}

func (e *execution) send(f workerproto.WorkerFrame) {
	e.w.mu.Lock()
	c := e.conn
	e.w.mu.Unlock()
	if c != nil {
		c.Send(f)
	}
}

func (e *execution) fits(raw []byte) bool {
	e.w.mu.Lock()
	c := e.conn
	e.w.mu.Unlock()
	return c == nil || c.Fits(raw)
}

func (e *execution) resumable() bool { return e.conn == nil && !e.lost }

// orphanLocked is called when the connection is gone: the execution goes on for
// keep, or not at all.
func (e *execution) orphanLocked(keep time.Duration) {
	e.conn = nil
	if keep <= 0 {
		e.loseLocked()
		return
	}
	e.expiry = time.AfterFunc(keep, func() {
		e.w.mu.Lock()
		over := e.resumable()
		if over {
			e.expireLocked()
		}
		e.w.mu.Unlock()
		if over {
			e.w.announce()
		}
	})
}

// expireLocked ends the time of an orphan. While the dispatcher has not answered
// it may just be taking the execution back: then the slot is busy for it, and must
// not be announced as free.
func (e *execution) expireLocked() {
	if e.asked {
		e.late = true
		return
	}
	e.loseLocked()
}

// unansweredLocked is called when a hello was not answered.
func (e *execution) unansweredLocked() {
	if e.asked = false; e.late {
		e.loseLocked()
	}
}

// resumeLocked continues an orphan on a new connection, which knows its slot. One
// that was given up meanwhile, as by a worker that stops, is given back: else its
// job would count as running for as long as the connection holds.
func (e *execution) resumeLocked(l *letter) {
	if e.lost {
		l.add(&workerproto.Release{Execution: e.job.named(), Reason: "it was given up before the dispatcher took it back"})
		return
	}
	e.expiry.Stop()
	e.conn = l.conn
	e.slot.announced = true
	if e.report != nil {
		report := under(e.report, l.conn.Session())
		e.w.freeLocked(e)
		e.w.keepLocked(e, report)
		l.add(report)
		e.w.countOutLocked()
	}
}

// loseLocked gives an execution up: its context ends and its report goes
// nowhere. The slot is announced again when the handler has returned; if it has, by
// the next letter that announces.
func (e *execution) loseLocked() {
	if e.lost {
		return
	}
	e.lost, e.conn = true, nil
	e.life.end(ErrLost)
	if e.report != nil {
		e.report = nil
		e.w.freeLocked(e)
		e.w.countOutLocked()
	}
}

// cancel ends the context of an execution, if it is still there.
func (w *Worker) cancel(name workerproto.Execution, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sl := range w.slots {
		if e := sl.run; e != nil && e.job.ID == name.Job && e.job.Attempt == name.Attempt {
			if errors.Is(cause, ErrTimeout) {
				cause = e.life.late()
			}
			e.life.end(cause)
			return
		}
	}
}
