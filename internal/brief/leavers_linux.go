package brief

import (
	"sync"
	"time"
)

// leavers are the connections that may have left something in the kernel. Most of
// them take it out themselves; one that falls silent is done with in the next round, so
// that nobody at the other end is short of room for long, however little a socket
// holds that he has chosen to be small.
var leavers leaverList

type leaverList struct {
	mu    sync.Mutex
	conns []*quiet
	spare []*quiet // reused
	timer *time.Timer
}

// leaveTime is from the end of one round to the next.
const leaveTime = 10 * time.Millisecond

// add notes a connection that has just left something.
func (l *leaverList) add(c *quiet) {
	if c.listed.Load() || !c.listed.CompareAndSwap(false, true) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	switch {
	case len(l.conns) > 1:
	case l.timer == nil:
		l.timer = time.AfterFunc(leaveTime, l.round)
	default:
		l.timer.Reset(leaveTime)
	}
}

// round takes out what all of them have left. One that had nothing goes.
func (l *leaverList) round() {
	l.mu.Lock()
	all := l.conns
	l.conns, l.spare = l.spare[:0], nil
	l.mu.Unlock()
	kept := all[:0]
	for _, c := range all {
		if c.left.Load() > 0 {
			c.takeOut()
			kept = append(kept, c)
			continue
		}
		c.listed.Store(false)
		// Who left something just before saw it listed.
		if c.left.Load() > 0 && c.listed.CompareAndSwap(false, true) {
			kept = append(kept, c)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, kept...)
	clear(all)
	l.spare = all[:0]
	if len(l.conns) > 0 {
		l.timer.Reset(leaveTime)
	}
}
