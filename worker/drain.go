package worker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// drain stops the worker. It sends Drain and lets running jobs end within Grace. Then
// it cancels the contexts of the remaining jobs and waits up to Abandon. Finally it
// closes the connection.
func (w *Worker) drain() error {
	if c := w.stopTaking(); c != nil {
		c.Send(&workerproto.Drain{})
	}
	err := w.awaitIdle(w.opts.Grace)
	if err != nil {
		w.cancelAll(ErrStopping)
		err = w.awaitIdle(w.opts.Abandon)
	}
	w.mu.Lock()
	c := w.conn
	w.mu.Unlock()
	if c != nil {
		if c.Remote() && err == nil {
			c.Queue(&workerproto.Goodbye{})
		}
		_ = c.Close() // first writes queued reports; makes the reader end
	}
	return err
}

// stopTaking makes the worker give back all further jobs. It returns the connection, or
// nil if there is none. Without a connection it gives up the running executions,
// because their results cannot be reported.
func (w *Worker) stopTaking() *workerproto.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
	if w.conn == nil {
		w.loseLocked(func(*execution) bool { return true })
	}
	if w.busy == 0 {
		w.closeIdle()
	}
	return w.conn
}

// awaitIdle waits until no execution is left, at most for d.
func (w *Worker) awaitIdle(d time.Duration) error {
	select {
	case <-w.idle:
		return nil
	case <-time.After(d):
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("worker: %d jobs were still running after %v and are abandoned", w.busy, d)
	}
}

// cancelAll cancels the contexts of all executions.
func (w *Worker) cancelAll(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sl := range w.sortedLocked() {
		if sl.run != nil {
			sl.run.cancel(cause)
		}
	}
}

// sortedLocked returns the slots in the order of their numbers.
func (w *Worker) sortedLocked() []*slot {
	return slices.SortedFunc(maps.Values(w.slots), func(a, b *slot) int { return cmp.Compare(a.Number, b.Number) })
}
