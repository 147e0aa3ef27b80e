package worker

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// A report that was sent need not have been read when the connection breaks, and
// the protocol has no receipts. So each slot keeps its last report until a later
// job on the slot shows that it was read, or until the connection has lived on
// for so long that the dispatcher would have been found silent. If the connection
// breaks before, the execution is presented like one that has ended in the gap:
// either the dispatcher takes it back, and gets the report once more, or the end
// is recorded, and nothing happens.

// keepLocked keeps the report of an execution that has left its slot.
func (w *Worker) keepLocked(e *execution, report workerproto.WorkerFrame) {
	n := reportSize(report)
	if w.resume <= 0 || e.job.ID.OnDemand() || w.kept+n > w.opts.KeptReports {
		return
	}
	e.report, e.since, e.slot.last = report, w.era, e
	w.kept += n
}

// dropLocked forgets the last report of a slot.
func (w *Worker) dropLocked(sl *slot) {
	if e := sl.last; e != nil {
		w.kept -= reportSize(e.report)
		sl.last = nil
	}
}

// doubtLocked puts an execution back on its slot whose report may not have been
// read on the connection c, which is gone.
func (w *Worker) doubtLocked(sl *slot, c *workerproto.Conn) {
	e := sl.last
	w.dropLocked(sl)
	if e != nil && e.conn == c && sl.run == nil && !sl.removed {
		sl.run = e
		w.busy++
	}
}

// growOld forgets reports that were sent more than an era ago, until ctx ends.
func (w *Worker) growOld(ctx context.Context, era time.Duration) {
	tick := time.NewTicker(era)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.nextEra()
		}
	}
}

func (w *Worker) nextEra() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.era++
	for _, sl := range w.slots {
		if sl.last != nil && sl.last.since < w.era-1 {
			w.dropLocked(sl)
		}
	}
}

// reportSize is the number of bytes that a report keeps from being freed.
func reportSize(report workerproto.WorkerFrame) int {
	switch r := report.(type) {
	case *workerproto.Done:
		return len(r.Result)
	case *workerproto.Fail:
		return len(r.Error)
	}
	return 0
}

// under is a report as it is sent in another session. The one it was made from
// may still be in the hands of whoever sends it.
func under(report workerproto.WorkerFrame, session string) workerproto.WorkerFrame {
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

// sign puts the session on a report before it is sent, after which nobody writes
// to it.
func sign(report workerproto.WorkerFrame, session string) {
	switch r := report.(type) {
	case *workerproto.Done:
		r.Session = session
	case *workerproto.Fail:
		r.Session = session
	case *workerproto.Release:
		r.Session = session
	}
}
