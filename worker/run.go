package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Run connects, works, and reconnects until ctx is done. Then it drains: no new
// work, running jobs end within Grace, after that their contexts are cancelled
// and they are given back. It returns nil after a clean stop; an error if
// handlers had to be abandoned, or if the dispatcher refuses this worker for a
// reason that does not go away (version, bad slot, not allowed).
func (w *Worker) Run(ctx context.Context) error {
	if err := w.start(); err != nil {
		return err
	}
	defer w.dismiss()
	stopped := make(chan error, 1)
	undo := context.AfterFunc(ctx, func() { stopped <- w.drain() })
	for pause := w.opts.MinBackoff; ; pause = min(2*pause, w.opts.MaxBackoff) {
		began := time.Now()
		welcomed, err := w.session(ctx)
		if ctx.Err() != nil {
			return <-stopped
		}
		if permanent(err) && undo() {
			w.stopTaking()
			return errors.Join(err, w.settle(w.opts.Abandon))
		}
		w.opts.Disconnected(err)
		if time.Since(began) > w.opts.MaxBackoff || welcomed && ended(err, workerproto.ShuttingDown) {
			pause = w.opts.MinBackoff // it worked for a while, or the next dispatcher is about to start
		}
		w.rest(ctx, pause)
	}
}

// rest waits between pause/2 and pause, or until ctx is done.
func (w *Worker) rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// permanent reports whether the dispatcher would refuse the same hello again.
func permanent(err error) bool {
	var refusal *workerproto.Error
	if !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Code {
	case workerproto.BadVersion, workerproto.BadSlot, workerproto.BadValue, workerproto.BadJSON, workerproto.Refused, workerproto.NotHello:
		return refusal.Fatal
	}
	return false
}

// ended reports whether the dispatcher's last word had this code.
func ended(err error, code workerproto.Code) bool {
	word, ok := errors.AsType[*workerproto.Error](err)
	return ok && word.Code == code
}

// session is one connection from hello to its end.
func (w *Worker) session(ctx context.Context) (welcomed bool, err error) {
	hello, presented := w.hello()
	c, err := workerproto.Dial(ctx, w.opts.Socket, hello)
	if err != nil {
		if ended(err, workerproto.FrameTooLong) {
			w.room = 0 // another dispatcher takes less than the last one
		}
		w.disconnected(nil)
		return false, fmt.Errorf("dispatcher at %s: %w", w.opts.Socket, err)
	}
	if !w.connected(c, hello, presented) {
		w.disconnected(nil)
		return false, errors.Join(context.Cause(ctx), c.Close())
	}
	w.room = c.Welcome().Limits.MaxFrame / 4 * 3
	living, end := context.WithCancel(ctx)
	defer end()
	go w.growOld(living, c.Welcome().Limits.Timeout)
	w.opts.Connected(c.Welcome())
	err = w.converse(c)
	if ended(err, workerproto.CancelIgnored) {
		w.convict(err)
	}
	w.disconnected(c)
	return true, errors.Join(err, c.Close())
}

// convict loses the execution that ignored its cancel: its job is somebody else's
// now. The others of the session are brought along.
func (w *Worker) convict(err error) {
	word, _ := errors.AsType[*workerproto.Error](err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sl := range w.slots {
		if sl.run != nil && sl.run.job.ID == word.Job {
			sl.run.loseLocked()
		}
	}
}

// whyCancelled is what a handler hears. The dispatcher's clock of an attempt
// starts before the worker's, so mostly its word that the time is up comes
// before the execution's own deadline; both mean the same.
func whyCancelled(reason string) error {
	if reason == workerproto.ReasonTimeout {
		return ErrTimeout
	}
	return fmt.Errorf("%w: %s", ErrCancelled, reason)
}

func (w *Worker) converse(c *workerproto.Conn) error {
	for {
		frames, err := c.Receive()
		if err != nil {
			return err
		}
		w.begin(c, frames)
		for _, f := range frames {
			switch f := f.(type) {
			case *workerproto.Cancel:
				w.cancel(f.Execution, whyCancelled(f.Reason))
			case *workerproto.Stale:
				w.cancel(f.Execution, ErrStale)
			case *workerproto.Error:
				w.opts.Complaint(f)
			}
		}
	}
}

// hello builds the frame: what still runs, as much as the dispatcher takes in a
// frame, for what is not in it is lost; then free slots, as many as fit.
func (w *Worker) hello() (*workerproto.Hello, []*execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := &workerproto.Hello{Worker: w.opts.Name, Resumes: true}
	var presented []*execution
	size := 0
	slots := w.sortedLocked()
	for _, sl := range slots {
		if sl.run == nil || !sl.run.resumable() {
			continue
		}
		if size += slotSize(sl); size > max(frameShare, w.room) {
			break
		}
		sl.run.times++
		h.Running = append(h.Running, workerproto.Running{Execution: sl.run.name(), Slot: sl.Slot, Times: sl.run.times})
		presented = append(presented, sl.run)
		sl.run.asked = true
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
	return h, presented
}

// connected takes the connection into use; false if the worker stops already.
func (w *Worker) connected(c *workerproto.Conn, hello *workerproto.Hello, presented []*execution) (used bool) {
	welcome := c.Welcome()
	resumed := make(map[workerproto.Resumed]bool, len(welcome.Resumed))
	for _, r := range welcome.Resumed {
		resumed[r] = true
	}
	w.tell(func(l *letter) {
		if used = !w.draining || w.busy > 0; !used {
			return
		}
		l.conn, w.conn, w.resume = c, c, welcome.Limits.Resume
		w.takeUpLocked(l, hello, presented, resumed)
	})
	return used
}

// takeUpLocked goes on with what the dispatcher has taken back, gives up the rest,
// and says what has changed since the hello.
func (w *Worker) takeUpLocked(l *letter, hello *workerproto.Hello, presented []*execution, resumed map[workerproto.Resumed]bool) {
	presented = slices.DeleteFunc(presented, func(e *execution) bool {
		e.asked, e.late = false, false
		return !resumed[workerproto.Resumed{Job: e.job.ID, Attempt: e.job.Attempt}]
	})
	w.withdrawLocked(l, hello, presented) // before the reports, which free the slots
	for _, e := range presented {
		e.resumeLocked(l)
	}
	for _, sl := range w.sortedLocked() { // what was neither resumed nor began here is nobody's any more
		if e := sl.run; e != nil && e.conn != l.conn {
			e.loseLocked()
		}
	}
	if w.draining {
		l.add(&workerproto.Drain{})
	}
	w.announceLocked(l)
}

// withdrawLocked takes back slots of the hello that take no jobs: those removed
// meanwhile; of the resumed ones also those removed before, and those with an
// execution that was given up while the dispatcher made up its mind.
func (w *Worker) withdrawLocked(l *letter, hello *workerproto.Hello, resumed []*execution) {
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
		l.add(&workerproto.SlotRemove{Slots: gone})
	}
}

// disconnected notes that the connection c is gone (nil: there never was one).
func (w *Worker) disconnected(c *workerproto.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = nil
	var keep time.Duration
	if c != nil && !w.draining {
		keep = c.Welcome().Limits.Resume
	}
	for _, sl := range w.sortedLocked() {
		if c == nil && sl.run != nil && sl.run.asked {
			sl.run.unansweredLocked()
		}
	}
	for _, sl := range w.sortedLocked() {
		sl.announced = false
		if keep > 0 {
			w.doubtLocked(sl, c)
		}
		if sl.run != nil && sl.run.conn == c && c != nil {
			sl.run.orphanLocked(keep)
		}
		w.forgetLocked(sl)
	}
}

// announceLocked writes a letter about free slots the dispatcher does not know, as
// many as it takes: a slot_add that is too long is refused as a whole.
func (w *Worker) announceLocked(l *letter) {
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
			l.add(&workerproto.SlotAdd{Slots: fresh})
			fresh, size = nil, slotSize(sl)
		}
		fresh = append(fresh, sl.Slot)
		sl.announced = true
	}
	if len(fresh) > 0 {
		l.add(&workerproto.SlotAdd{Slots: fresh})
	}
}

// roomLocked is how many more slots the dispatcher takes of this worker. Slots
// that are removed count until their job has ended.
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

// frameShare is how many bytes of slots go into one frame: every dispatcher
// takes frames of 64 KiB.
const frameShare = 48 << 10

// slotSize is about what a slot, busy or free, takes in a frame.
func slotSize(sl *slot) int {
	n := 128
	for _, t := range sl.Types {
		n += len(t) + 3
	}
	return n
}
