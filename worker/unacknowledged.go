package worker

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// The protocol has no acknowledgements, so a report may be lost when the connection
// breaks. Each slot therefore keeps its last report. The report is dropped when a later
// job on the slot proves that the dispatcher has read the report. It is also dropped
// when the connection has lasted so long that the worker would have noticed a silent
// dispatcher. If the connection breaks earlier, the next hello offers the execution. If
// the dispatcher resumes the execution, it gets the report again. Otherwise the end of
// the attempt is recorded already.

// keepReportLocked keeps the report of an execution that has left its slot.
func (w *Worker) keepReportLocked(e *execution, report workerproto.WorkerFrame) {
	n := reportSize(report)
	if w.resume <= 0 || e.job.Mode == dispatcherd.OnDemand || w.kept+n > w.opts.KeptReports {
		return
	}
	// The report names no session, so it can be sent on another connection, too.
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

// restoreReportLocked is called when connection c has ended. If the last report of the
// slot was sent on c, it puts the execution back on the slot.
func (w *Worker) restoreReportLocked(sl *slot, c *workerproto.Conn) {
	e := sl.unacknowledged
	w.dropReportLocked(sl)
	if e != nil && e.conn == c && sl.run == nil && !sl.removed {
		sl.run = e
		w.busy++
	}
}

// nextPeriod drops reports that are older than a whole period.
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

// reportSize returns the number of bytes that the text of a report holds in memory.
func reportSize(report workerproto.WorkerFrame) int {
	switch r := report.(type) {
	case *workerproto.Done:
		return len(r.Result)
	case *workerproto.Fail:
		return len(r.Error)
	}
	return 0
}
