package worker

import (
	"time"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// An execution is detached while the worker has no connection. The next hello
// offers to resume it; the welcome names the executions that are resumed.

// detached reports whether the execution can be offered.
func (e *execution) detached() bool { return e.conn == nil && !e.lost }

// offer returns the resume offer.
func (e *execution) offer() workerproto.Running {
	id := workerproto.Execution{Job: e.job.ID, Attempt: e.job.Attempt, Session: e.session}
	return workerproto.Running{Execution: id, Slot: e.slot.Slot, Generation: e.generation}
}

// detachLocked is called when the connection is gone: the execution continues for
// keep, or not at all.
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
			e.expireLocked()
		}
		e.w.mu.Unlock()
		if over {
			e.w.announce()
		}
	})
}

// expireLocked ends the time without a connection. While an offer is unanswered,
// the dispatcher may be resuming the execution. The dispatcher then considers the
// slot busy, so the slot must not be announced as free.
func (e *execution) expireLocked() {
	if e.offered {
		e.expired = true
		return
	}
	e.loseLocked()
}

// offerFailedLocked is called when an offer was not answered.
func (e *execution) offerFailedLocked() {
	if e.offered = false; e.expired {
		e.loseLocked()
	}
}

// resumeLocked continues the execution on a new connection, which knows its slot.
// The execution may have been lost meanwhile, for example because the worker stops.
// It is then given back. Otherwise its job would count as running while the
// connection lasts.
func (e *execution) resumeLocked(o *outgoing) {
	if e.lost {
		o.add(&workerproto.Release{Execution: e.job.execution(), Reason: "it was given up before the dispatcher took it back"})
		return
	}
	e.expiry.Stop()
	e.conn = o.conn
	e.slot.announced = true
	if e.report != nil {
		report := copyFor(e.report, o.conn.Session())
		e.w.freeLocked(e)
		e.w.keepReportLocked(e, report)
		o.add(report)
		e.w.countEndLocked()
	}
}

// loseLocked gives up an execution: its context ends and its report is dropped. The
// slot is announced again when the handler has returned. If the handler has
// returned already, the slot is announced at once.
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
