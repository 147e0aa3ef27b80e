package worker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// drain stops the worker: it says so, lets running jobs end within Grace, then
// cancels their contexts, and at last hangs up.
func (w *Worker) drain() error {
	c := w.stopTaking()
	if c != nil {
		w.telling.Lock() // behind the letters of before
		c.Send(&workerproto.Drain{})
		w.telling.Unlock()
	}
	err := w.settle(w.opts.Grace)
	if err != nil {
		w.cancelAll(ErrStopping)
		err = w.settle(w.opts.Abandon)
	}
	w.telling.Lock() // reports of work that was taken up may stand in a letter
	w.mu.Lock()
	c = w.conn
	w.mu.Unlock()
	w.telling.Unlock()
	if c != nil {
		_ = c.Close() // what was reported is written first; the reader ends
	}
	return err
}

// stopTaking refuses jobs from now on and returns the connection, if there is
// one. Without one nobody will hear the results of what still runs.
func (w *Worker) stopTaking() *workerproto.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
	if w.conn == nil {
		for _, sl := range w.sortedLocked() {
			if sl.run != nil {
				sl.run.loseLocked()
			}
		}
	}
	if w.busy == 0 {
		w.quietLocked()
	}
	return w.conn
}

// quietLocked says, once, that nothing runs any more.
func (w *Worker) quietLocked() {
	select {
	case <-w.idle:
	default:
		close(w.idle)
	}
}

// settle waits until nothing runs, at most for d.
func (w *Worker) settle(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.idle:
		return nil
	case <-timer.C:
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("worker: %d jobs were still running after %v and are left behind", w.busy, d)
	}
}

// cancelAll ends the context of everything that runs.
func (w *Worker) cancelAll(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sl := range w.sortedLocked() {
		if sl.run != nil {
			sl.run.life.end(cause)
		}
	}
}

func (w *Worker) sortedLocked() []*slot {
	all := make([]*slot, 0, len(w.slots))
	for _, sl := range w.slots {
		all = append(all, sl)
	}
	slices.SortFunc(all, func(a, b *slot) int { return cmp.Compare(a.Number, b.Number) })
	return all
}
