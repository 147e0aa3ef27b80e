package worker

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// The protocol has no acknowledgements, so a report may be lost when the connection
// breaks. Each slot therefore keeps its last report. It drops the report when a
// later job on the slot proves that the report was read. It also drops it when the
// connection has lasted so long that a silent dispatcher would have been noticed.
// If the connection breaks before, the worker offers to resume the execution, like
// one that ended without a connection. Either the dispatcher resumes it and gets
// the report again, or the end is recorded already.

// keepReportLocked keeps the report of an execution that has left its slot.
func (w *Worker) keepReportLocked(e *execution, report workerproto.WorkerFrame) {
	n := reportSize(report)
	if w.resume <= 0 || e.job.Mode == dispatcherd.OnDemand || w.kept+n > w.opts.KeptReports {
		return
	}
	// The report is read-only once the mutex is released: until then Conn.Queue sets its session.
	e.report, e.sentIn, e.slot.unacknowledged = report, w.period, e
	w.kept += n
}

// dropReportLocked drops the unacknowledged report of a slot.
func (w *Worker) dropReportLocked(sl *slot) {
	if e := sl.unacknowledged; e != nil {
		w.kept -= reportSize(e.report)
		sl.unacknowledged = nil
	}
}

// restoreReportLocked restores an execution to its slot if its report was sent on
// connection c, which has ended.
func (w *Worker) restoreReportLocked(sl *slot, c *workerproto.Conn) {
	e := sl.unacknowledged
	w.dropReportLocked(sl)
	if e != nil && e.conn == c && sl.run == nil && !sl.removed {
		sl.run = e
		w.busy++
	}
}

// expireReports drops reports that were sent more than a period ago, until ctx ends.
func (w *Worker) expireReports(ctx context.Context, period time.Duration) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.nextPeriod()
		}
	}
}

func (w *Worker) nextPeriod() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.period++
	for _, sl := range w.slots {
		if sl.unacknowledged != nil && sl.unacknowledged.sentIn < w.period-1 {
			w.dropReportLocked(sl)
		}
	}
}

// reportSize is the number of bytes that a report holds in memory.
func reportSize(report workerproto.WorkerFrame) int {
	switch r := report.(type) {
	case *workerproto.Done:
		return len(r.Result)
	case *workerproto.Fail:
		return len(r.Error)
	}
	return 0
}

// copyFor returns a copy of a report for another session. The original may still be
// queued on a connection.
func copyFor(report workerproto.WorkerFrame, session string) workerproto.WorkerFrame {
	switch r := report.(type) {
	case *workerproto.Done:
		again := *r
		again.Session = session
		return &again
	case *workerproto.Fail:
		again := *r
		again.Session = session
		return &again
	case *workerproto.Release:
		again := *r
		again.Session = session
		return &again
	}
	return report
}
