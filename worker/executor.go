package worker

import "github.com/dispatcherd/dispatcherd/workerproto"

// executors are the goroutines that run handlers. A new one starts only if there is
// work and no executor is idle. An executor runs one job after the other. So very
// short jobs need neither a new goroutine nor a switch of goroutines, and one write
// sends several reports. With a goroutine for each job, no-op jobs on 32 slots take
// three times as long.
//
// A job never waits for the end of another job. Before an executor starts a job, it
// wakes another executor if more jobs are queued or reports are not flushed. The woken
// executor first flushes the reports. If the queue is empty by then, it becomes idle
// again.
//
// All fields are guarded by the worker's mutex.
type executors struct {
	queue     []*execution      // assigned to slots, but not started
	idle      []chan struct{}   // executors without work; each waits on its own channel
	waking    bool              // an executor was woken but does not run yet
	unflushed *workerproto.Conn // connection with queued reports; nil: none
	stopped   bool              // executors without work must end
}

// wakeExecutorLocked wakes or starts an executor, unless one was woken already.
func (w *Worker) wakeExecutorLocked() {
	x := &w.executors
	if x.waking {
		return
	}
	x.waking = true
	n := len(x.idle)
	if n == 0 {
		go w.runExecutor()
		return
	}
	wake := x.idle[n-1] // the executor that was active most recently
	x.idle = x.idle[:n-1]
	wake <- struct{}{} // the channel has room, because an executor is idle only once
}

// runExecutor is an executor. It runs jobs until the worker has ended.
func (w *Worker) runExecutor() {
	x := &w.executors
	wake := make(chan struct{}, 1)
	exited := true
	defer func() {
		if exited { // user code called runtime.Goexit
			w.mu.Lock()
			w.wakeExecutorLocked()
			w.mu.Unlock()
		}
	}()
	w.mu.Lock()
	x.waking = false
	for {
		w.flushLocked()
		for e := w.nextLocked(); e != nil; e = w.nextLocked() {
			w.mu.Unlock()
			e.execute()
			w.mu.Lock()
		}
		switch {
		case x.unflushed != nil:
			continue
		case x.stopped:
			exited = false
			w.mu.Unlock()
			return
		}
		x.idle = append(x.idle, wake)
		w.mu.Unlock()
		<-wake
		w.mu.Lock()
		x.waking = false
	}
}

// nextLocked removes the next execution from the queue, or returns nil. It wakes
// another executor for the rest.
func (w *Worker) nextLocked() *execution {
	x := &w.executors
	if len(x.queue) == 0 {
		return nil
	}
	e := x.queue[0]
	x.queue[0], x.queue = nil, x.queue[1:]
	if len(x.queue) > 0 || x.unflushed != nil {
		w.wakeExecutorLocked()
	}
	return e
}

// flushLocked flushes queued reports. It releases the mutex meanwhile.
func (w *Worker) flushLocked() {
	c := w.executors.unflushed
	if c == nil {
		return
	}
	w.executors.unflushed = nil
	w.mu.Unlock()
	c.Flush()
	w.mu.Lock()
}

// stopExecutors ends idle executors at once. The others end when they have no work.
func (w *Worker) stopExecutors() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executors.stopped = true
	for _, wake := range w.executors.idle {
		wake <- struct{}{}
	}
	w.executors.idle = nil
}
