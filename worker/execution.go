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
//	running ──► ended ──► reported            with a connection throughout
//	   └─ detached ──► resumed on the next connection, or lost
//
// Fields below the empty line are guarded by the worker's mutex.
type execution struct {
	w       *Worker
	slot    *slot
	job     Job
	handler Handler
	ctx     context.Context // without the timeout, which starts when the handler is called
	cancel  context.CancelCauseFunc

	conn       *workerproto.Conn       // session for reports; nil while detached
	session    string                  // nonce of the session in which the execution began; proves that this worker got the job
	generation int                     // number of resume offers so far
	lost       bool                    // the worker has given it up; its report is not needed
	report     workerproto.WorkerFrame // report that may have to be sent on the next connection; nil: none
	sentIn     int                     // the period in which the report was sent
	expiry     *time.Timer             // set while detached
}

// begin queues an execution for each job among the frames. It releases jobs that cannot
// run.
func (w *Worker) begin(c *workerproto.Conn, frames []workerproto.DispatcherFrame) {
	var released []*workerproto.Release
	w.mu.Lock()
	for _, f := range frames {
		f, ok := f.(*workerproto.Job)
		if !ok {
			continue
		}
		e := w.newExecution(c, f)
		if reason := w.assignLocked(e); reason != "" {
			released = append(released, &workerproto.Release{Execution: f.Execution, Reason: reason})
			continue
		}
		w.executors.queue = append(w.executors.queue, e)
		w.wakeExecutorLocked()
	}
	w.mu.Unlock()
	for _, r := range released {
		c.Send(r)
	}
}

// newExecution returns an execution for a job frame. The end of the connection does not
// end the context of the execution.
func (w *Worker) newExecution(c *workerproto.Conn, f *workerproto.Job) *execution {
	e := &execution{w: w, conn: c, session: c.Session(), job: Job{
		ID: f.Job, Attempt: f.Attempt, Token: f.Token, Slot: f.Slot, Type: f.Type, Mode: f.Mode,
		Payload: f.Payload, Fence: f.Fence, Timeout: f.Timeout, Age: f.Age, Traceparent: f.Traceparent,
	}}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.job.run = e
	return e
}

// assignLocked puts e on its slot. If this is impossible, it returns the reason,
// otherwise "".
func (w *Worker) assignLocked(e *execution) (reason string) {
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
	w.dropReportLocked(sl) // the dispatcher has read the report, because it considers the slot free
	sl.run = e
	w.busy++
	return ""
}

// execute runs the handler and reports the result. The methods of the result, of the error
// and of the value of a panic are user code, too: each of them may panic or call
// runtime.Goexit. Goexit ends this goroutine, and runExecutor replaces it.
func (e *execution) execute() {
	var report workerproto.WorkerFrame
	defer func() {
		if report == nil {
			report = e.newReport(nil, errors.New("the handler, or a method of what it returned, called runtime.Goexit"))
		}
		e.end(report)
	}()
	defer func() {
		if v := recover(); v != nil {
			report = e.newReport(nil, panicError(v))
		}
	}()
	report = e.newReport(e.callHandler())
}

// panicError returns an error with the value of a panic and the stack. A deferred function
// calls it.
func panicError(v any) (err error) {
	stack := debug.Stack()
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("panic: a %T, which panics again when it is printed\n%s", v, stack)
		}
	}()
	return fmt.Errorf("panic: %v\n%s", v, stack)
}

func (e *execution) callHandler() (any, error) {
	ctx := e.ctx
	if e.job.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, e.job.Timeout, e.timeoutCause())
		defer stop()
	}
	result, err := e.handler(ctx, &e.job)
	if end := ctx.Err(); err != nil && end != nil && errors.Is(err, end) {
		err = context.Cause(ctx) // more precise than "context canceled"
	}
	return result, err
}

// end frees the slot before it sends the report, because the dispatcher may send the next
// job as soon as it has read the report.
func (e *execution) end(report workerproto.WorkerFrame) {
	w := e.w
	w.mu.Lock()
	c := e.conn
	if c == nil && !e.lost {
		e.report = report // the report is kept for the next connection, and the slot stays busy
		w.mu.Unlock()
		return
	}
	w.freeLocked(e)
	if !e.lost {
		w.keepReportLocked(e, report)
		c.Queue(report)
		w.executors.unflushed = c
	}
	room := e.lost || e.slot.removed // the slot can be announced again, or it makes room for another slot
	w.countEndLocked()
	w.mu.Unlock()
	if room {
		w.announce()
	}
}

// timeoutCause returns the cause of a context that ends because of the timeout.
func (e *execution) timeoutCause() error {
	if e.job.Timeout <= 0 {
		return ErrTimeout // only the dispatcher knows the limit
	}
	return fmt.Errorf("%w: %v", ErrTimeout, e.job.Timeout)
}

// freeLocked takes e off its slot.
func (w *Worker) freeLocked(e *execution) {
	e.cancel(context.Canceled)
	if e.expiry != nil {
		e.expiry.Stop()
	}
	if e.slot.run == e {
		e.slot.run = nil
	}
	w.deleteRemovedLocked(e.slot)
}

// countEndLocked counts the end of an execution after its report was queued.
func (w *Worker) countEndLocked() {
	if w.busy--; w.busy == 0 && w.draining {
		w.closeIdle()
	}
	if w.leaving != nil {
		w.leaveIdleLocked()
	}
}

// newReport returns the report for the result of the handler.
func (e *execution) newReport(result any, err error) workerproto.WorkerFrame {
	id := e.job.execution()
	if err == nil {
		var raw []byte
		if raw, err = encode(result); err == nil && raw != nil && !e.fits(raw) {
			err = fmt.Errorf("a result of %d bytes is too long for a frame", len(raw))
		}
		if err == nil {
			return &workerproto.Done{Execution: id, Result: raw}
		}
		err = Permanent(err)
	}
	if cause := context.Cause(e.ctx); errors.Is(cause, ErrStopping) {
		return &workerproto.Release{Execution: id, Reason: cause.Error()}
	}
	fail := &workerproto.Fail{Execution: id, Error: err.Error()}
	if delayed, ok := errors.AsType[delayedError](err); ok {
		fail.RetryAfter = min(max(delayed.delay, 0), 365*24*time.Hour)
	}
	var final permanentError
	fail.Permanent = errors.As(err, &final) || errors.Is(err, ErrCancelled)
	return fail
}

// connection returns the connection for reports, or nil if there is none.
func (e *execution) connection() *workerproto.Conn {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	return e.conn
}

// send sends a frame about the execution. It drops the frame if there is no connection.
func (e *execution) send(f workerproto.WorkerFrame) {
	if c := e.connection(); c != nil {
		c.Send(f)
	}
}

func (e *execution) fits(raw []byte) bool {
	c := e.connection()
	return c == nil || c.Fits(raw)
}

// cancel cancels the context of an execution that is still on its slot.
func (w *Worker) cancel(id workerproto.Execution, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sl := range w.slots {
		if e := sl.run; e != nil && e.job.ID == id.Job && e.job.Attempt == id.Attempt {
			if errors.Is(cause, ErrTimeout) {
				cause = e.timeoutCause()
			}
			e.cancel(cause)
			return
		}
	}
}
