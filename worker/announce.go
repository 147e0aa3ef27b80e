package worker

import (
	"math"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// update calls change with the mutex held, and sends the frames that change has queued when the mutex is free again. So
// frames about slots have the order of the changes, and a full socket does not block goroutines that only need the mutex.
func (w *Worker) update(change func()) {
	w.mu.Lock()
	change()
	c := w.conn
	w.mu.Unlock()
	if c != nil {
		c.Flush()
	}
}

// announce announces the free slots that the dispatcher does not know.
func (w *Worker) announce() { w.update(w.announceLocked) }

// announceLocked announces free slots that the dispatcher does not know. It announces
// only as many as the dispatcher accepts, because the dispatcher rejects a slot_add
// with too many slots as a whole.
func (w *Worker) announceLocked() {
	if w.conn == nil || w.draining {
		return
	}
	room := w.roomLocked()
	var fresh []workerproto.Slot
	size := 0
	for _, sl := range w.sortedLocked() {
		if sl.announced || sl.removed || sl.run != nil {
			continue
		}
		if room--; room < 0 {
			break
		}
		if size += slotSize(sl); size > frameShare && len(fresh) > 0 {
			w.conn.Queue(&workerproto.SlotAdd{Slots: fresh})
			fresh, size = nil, slotSize(sl)
		}
		fresh = append(fresh, sl.Slot)
		sl.announced = true
	}
	if len(fresh) > 0 {
		w.conn.Queue(&workerproto.SlotAdd{Slots: fresh})
	}
}

// roomLocked returns how many more slots the dispatcher accepts from this worker.
// Removed slots count until their job has ended.
func (w *Worker) roomLocked() int {
	room := w.conn.Welcome().Limits.MaxSlots
	if room <= 0 {
		return math.MaxInt
	}
	for _, sl := range w.slots {
		if sl.announced {
			room--
		}
	}
	return room
}

// frameShare is the largest size of the slots in one frame, in bytes. The frame then
// has less than 64 KiB, which every dispatcher accepts.
const frameShare = 48 << 10

// slotSize is the approximate size of a slot or a resume offer in a frame.
func slotSize(sl *slot) int {
	n := 128
	for _, t := range sl.Types {
		n += len(t) + 3
	}
	return n
}
