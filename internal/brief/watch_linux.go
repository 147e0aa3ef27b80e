package brief

import (
	"sync/atomic"
	"syscall"
	"time"
)

// watchEvery bounds how much later than after an announced read the runtime's monitor
// looks at a goroutine that computes on and on.
const watchEvery = 10 * time.Millisecond

// watch sees to it that the monitor wakes soon after each read that found something,
// although no read tells it. The monitor sleeps no longer than until the earliest
// timer there was when it fell asleep. So the first read after a pause wakes it, as any
// system call does, and before that sets a timer; as long as more is read the timer
// is set again each time it has fired. That is a hundred wakes a second for however many reads.
type watch struct {
	timer *time.Timer
	on    atomic.Bool // the timer is set, and was when the monitor fell asleep
	news  atomic.Bool // something was found since the timer was set
}

func newWatch() *watch {
	w := &watch{}
	w.timer = time.AfterFunc(time.Hour, w.tick)
	w.timer.Stop()
	return w
}

// found is called for each read of the socket that found something.
func (w *watch) found(fd int) {
	if w.news.Load() {
		return
	}
	w.news.Store(true)
	if !w.on.Swap(true) {
		w.timer.Reset(watchEvery)
		_, _ = syscall.Read(fd, nil) // of nothing, to be announced
	}
}

// tick ends the watch, or prolongs it. What is found meanwhile either sets the timer
// itself or is seen here.
func (w *watch) tick() {
	w.on.Store(false)
	if w.news.Swap(false) {
		w.timer.Reset(watchEvery)
		w.on.Store(true)
	}
}

// end lets the timer go. It may fire twice more if something is being read.
func (w *watch) end() { w.timer.Stop() }
