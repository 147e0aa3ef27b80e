package worker

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// hello returns the hello frame and the executions that it offers. It first offers
// detached executions, as many as the dispatcher accepts in a frame. Executions that
// are not offered are lost. Then it announces free slots, as many as fit.
func (w *Worker) hello() (*workerproto.Hello, []*execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := &workerproto.Hello{Worker: w.opts.Name, Resumes: true, Process: w.process, Moves: w.moves()}
	var offered []*execution
	size := 0
	slots := w.sortedLocked()
	for _, sl := range slots {
		if sl.run == nil || !sl.run.detached() {
			continue
		}
		if size += slotSize(sl); size > max(frameShare, w.room) {
			break
		}
		sl.run.generation++
		h.Running = append(h.Running, sl.run.offer())
		offered = append(offered, sl.run)
	}
	for _, sl := range slots {
		if sl.run != nil || sl.removed {
			continue
		}
		if size += slotSize(sl); size > frameShare {
			break // the rest follows in a slot_add
		}
		h.Slots = append(h.Slots, sl.Slot)
		sl.announced = true
	}
	return h, offered
}

// connected stores the connection. It returns false if the worker is stopping and has
// no executions.
func (w *Worker) connected(c *workerproto.Conn, hello *workerproto.Hello, offered []*execution) (used bool) {
	welcome := c.Welcome()
	resumed := make(map[workerproto.Resumed]bool, len(welcome.Resumed))
	for _, r := range welcome.Resumed {
		resumed[r] = true
	}
	w.update(func() {
		if used = !w.draining || w.busy > 0; !used {
			return
		}
		w.conn, w.resume = c, welcome.Limits.Resume
		w.resumeAllLocked(hello, offered, resumed)
	})
	return used
}

// resumeAllLocked continues the executions that the dispatcher has resumed, gives up
// the others, and sends what has changed since the hello.
func (w *Worker) resumeAllLocked(hello *workerproto.Hello, offered []*execution, resumed map[workerproto.Resumed]bool) {
	offered = slices.DeleteFunc(offered, func(e *execution) bool {
		return !resumed[workerproto.Resumed{Job: e.job.ID, Attempt: e.job.Attempt}]
	})
	w.withdrawLocked(hello, offered) // before the reports, because these free the slots
	for _, e := range offered {
		e.resumeLocked()
	}
	w.loseLocked(func(e *execution) bool { return e.conn != w.conn }) // they were neither resumed nor begun on this connection
	if w.draining {
		w.conn.Queue(&workerproto.Drain{})
	}
	w.announceLocked()
}

// withdrawLocked removes slots that the dispatcher has registered but that take no
// jobs. These are slots of the hello that were removed since, and slots of resumed
// executions if the slot was removed or the execution was lost since.
func (w *Worker) withdrawLocked(hello *workerproto.Hello, resumed []*execution) {
	var gone []int32
	for _, e := range resumed {
		if e.slot.removed || e.lost {
			gone = append(gone, e.slot.Number)
		}
	}
	for i := range hello.Slots {
		if sl := w.slots[hello.Slots[i].Number]; sl == nil || sl.removed {
			gone = append(gone, hello.Slots[i].Number)
		}
	}
	if len(gone) > 0 {
		w.conn.Queue(&workerproto.SlotRemove{Slots: gone})
	}
}

// disconnected records the end of connection c. c is nil if the connection was never used.
func (w *Worker) disconnected(c *workerproto.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = nil
	w.endSpawnsLocked()
	var keep time.Duration
	if c != nil && !w.draining {
		keep = c.Keep()
	}
	for _, sl := range w.sortedLocked() {
		sl.announced = false
		if keep > 0 {
			w.restoreReportLocked(sl, c)
		}
		if sl.run != nil && sl.run.conn == c && c != nil {
			sl.run.detachLocked(keep)
		}
		w.deleteRemovedLocked(sl)
	}
}
