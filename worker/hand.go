package worker

import "github.com/dispatcherd/dispatcherd/workerproto"

// hands are the goroutines that run handlers, as many as handlers were ever at
// work at once. A hand runs one job after the other; jobs that take no time
// cost neither a goroutine nor a switch, and their reports leave in one write.
//
// Every job that waits has a hand of its own at once if its predecessor takes
// time: before a hand begins a job while others wait, or while reports wait to
// be written, it calls another hand, which begins by writing them. If the jobs
// are over before that one runs, it finds nothing to do.
//
// All fields are guarded by the worker's mutex.
type hands struct {
	queue  []*execution      // on their slots, not begun: queue[head:]
	head   int               // of queue
	parked []chan struct{}   // hands without work, each waits on its own
	coming bool              // a hand was called and has not arrived
	unsent *workerproto.Conn // has reports that nobody has told it to write
	closed bool              // hands without work go home
}

// callLocked brings another hand, unless one is on its way.
func (w *Worker) callLocked() {
	h := &w.hands
	if h.coming {
		return
	}
	h.coming = true
	n := len(h.parked)
	if n == 0 {
		go w.hand()
		return
	}
	wake := h.parked[n-1] // the one with the warmest stack
	h.parked = h.parked[:n-1]
	wake <- struct{}{} // has room: one is parked once
}

// hand runs jobs until the worker has ended.
func (w *Worker) hand() {
	h := &w.hands
	wake := make(chan struct{}, 1)
	w.mu.Lock()
	h.coming = false
	for {
		w.flushLocked()
		for e := w.nextLocked(); e != nil; e = w.nextLocked() {
			w.mu.Unlock()
			e.execute()
			w.mu.Lock()
		}
		switch {
		case h.unsent != nil:
			continue
		case h.closed:
			w.mu.Unlock()
			return
		}
		h.parked = append(h.parked, wake)
		w.mu.Unlock()
		<-wake
		w.mu.Lock()
		h.coming = false
	}
}

// nextLocked takes the next execution off the queue, nil if there is none. It
// may take a while, so whatever else waits gets another hand.
func (w *Worker) nextLocked() *execution {
	h := &w.hands
	if h.head == len(h.queue) {
		return nil
	}
	e := h.queue[h.head]
	h.queue[h.head] = nil
	h.head++
	if h.head == len(h.queue) {
		h.queue, h.head = h.queue[:0], 0
	}
	if len(h.queue) > 0 || h.unsent != nil {
		w.callLocked()
	}
	return e
}

// flushLocked lets the reports that wait be written.
func (w *Worker) flushLocked() {
	c := w.hands.unsent
	if c == nil {
		return
	}
	w.hands.unsent = nil
	w.mu.Unlock()
	c.Flush()
	w.mu.Lock()
}

// dismiss lets hands without work end, and the others when they have none.
func (w *Worker) dismiss() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hands.closed = true
	for _, wake := range w.hands.parked {
		wake <- struct{}{}
	}
	w.hands.parked = nil
}
