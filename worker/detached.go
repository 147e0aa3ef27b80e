package worker

import (
	"time"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// An execution is detached while the worker has no connection. The next hello offers to
// resume the execution. The welcome names the executions that the dispatcher resumes.

// detached reports whether the execution can be offered.
func (e *execution) detached() bool { return e.conn == nil && !e.lost }

// offer returns the resume offer.
func (e *execution) offer() workerproto.Running {
	id := workerproto.Execution{Job: e.job.ID, Attempt: e.job.Attempt, Session: e.session}
	return workerproto.Running{Execution: id, Slot: e.slot.Slot, Generation: e.generation}
}

// detachLocked is called when the connection is gone. The execution continues for keep.
// If keep is 0 or negative, it is lost at once.
func (e *execution) detachLocked(keep time.Duration) {
	e.conn = nil
	if keep <= 0 {
		e.loseLocked()
		return
	}
	e.expiry = time.AfterFunc(keep, func() {
		e.w.mu.Lock()
		over := e.detached()
		if over {
			e.loseLocked()
		}
		e.w.mu.Unlock()
		if over {
			e.w.announce()
		}
	})
}

// resumeLocked continues the execution on a new connection, whose dispatcher has
// registered its slot as busy. The execution may have been lost meanwhile, because the
// worker stops or because the answer came too late. resumeLocked then releases the job.
// Otherwise the dispatcher would consider the job running as long as the connection lasts.
func (e *execution) resumeLocked() {
	c := e.w.conn
	if e.lost {
		c.Queue(&workerproto.Release{Execution: e.job.execution(), Reason: "the worker gave the execution up before the dispatcher resumed it"})
		return
	}
	e.expiry.Stop()
	e.conn = c
	e.slot.announced = true
	if e.report != nil {
		e.w.freeLocked(e)
		e.w.keepReportLocked(e, e.report)
		c.Queue(e.report)
		e.w.countEndLocked()
	}
}

// loseLocked gives up executions.
func (w *Worker) loseLocked(which func(*execution) bool) {
	for _, sl := range w.sortedLocked() {
		if sl.run != nil && which(sl.run) {
			sl.run.loseLocked()
		}
	}
}

// loseLocked gives up an execution: it ends the context and drops the report. The slot
// can be announced again when the handler has returned. If the handler has returned
// already, loseLocked frees the slot, and the caller announces it.
func (e *execution) loseLocked() {
	if e.lost {
		return
	}
	e.lost, e.conn = true, nil
	e.cancel(ErrLost)
	if e.report != nil {
		e.report = nil
		e.w.freeLocked(e)
		e.w.countEndLocked()
	}
}
