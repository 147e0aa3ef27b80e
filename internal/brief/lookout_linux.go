package brief

import (
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Lookout has a read look for what comes next, for a moment, instead of letting the
// program fall asleep: who writes then need not wake a processor, which
// takes longer than many an answer. It helps a program
// that keeps to one processor (GOMAXPROCS) of several and has nothing else to do; none
// is due where it uses more, where there are not two, since the others need one for
// their answer, or a quota of them would be used up by looking, and while Alone does not
// say so.
//
// It watches itself: after each look that was in vain twice as many are left out as
// after the one before, up to 255.
type Lookout struct {
	Habit

	armed  atomic.Bool
	passes atomic.Int32 // looks to leave out
	vain   int          // looks in vain since the last one that was not; the reader's
	since  time.Time    // the first look since the last rest; zero = there was none; the reader's
}

// Habit is how a Lookout looks.
type Habit struct {
	Most  time.Duration // for which it looks
	Alone func() bool   // reports whether the program has nothing else to do; asked again and again
	// Yields lets other programs on the same processor go first after every so many tries; 0
	// = never. To give it away takes as long as a try; never to do so is in vain if the
	// program that is to write waits for this very processor.
	Yields int
	// Rest is for how long looks follow each other. Then one is left out, and the read
	// waits like any other: a program that finds the next thing to do each time never
	// falls asleep, and only then Go asks what has come on all the other connections.
	// 0 = for ever.
	Rest time.Duration
	Told func(found bool, took time.Duration) // of each look; may be nil
}

// NewLookout returns a lookout for the reads of conn, which Conn or Inward has returned.
// It is nil, for which no look is ever due, if Most is not positive, Alone is nil, or
// conn is no Unix socket. To be called by who reads, or before.
func NewLookout(conn net.Conn, h Habit) *Lookout {
	if h.Most <= 0 || h.Alone == nil {
		return nil
	}
	if h.Told == nil {
		h.Told = func(bool, time.Duration) {}
	}
	l := &Lookout{Habit: h}
	switch c := conn.(type) {
	case *quiet:
		if !c.looks {
			return nil
		}
		c.in.lookout = l
	case *inward:
		c.in.lookout = l
	default:
		return nil
	}
	return l
}

// mostVain bounds how many looks are left out: 2^8 - 1.
const mostVain = 8

// Due reports whether the next read should look. Each time that it should if it were
// not for looks that were in vain counts as one that was left out. It belongs to one
// goroutine, which need not be the reader's.
func (l *Lookout) Due() bool {
	if l == nil || !l.Alone() || runtime.GOMAXPROCS(0) > 1 || processors() < 2 {
		return false
	}
	if l.passes.Load() > 0 {
		l.passes.Add(-1)
		return false
	}
	return true
}

// Arm has the next read of the connection look first. A look that ends because the
// program has something else to do does not count as in vain. While it looks all
// goroutines with something to do go first; what comes on other connections, and the
// read's deadline, wait.
func (l *Lookout) Arm() { l.armed.Store(true) }

// look tries a transfer that was begun until it has come to its end, which it reports.
func (l *Lookout) look(t *transfer) (done bool) {
	if l == nil || !l.armed.Load() || !l.armed.Swap(false) {
		return false
	}
	var took time.Duration
	began, alone, open := time.Now(), l.Alone(), true
	if l.since.IsZero() {
		l.since = began
	}
	if l.Rest > 0 && began.Sub(l.since) >= l.Rest {
		l.since = time.Time{}
		return false
	}
	for tries := 1; alone && open && took < l.Most; tries++ {
		runtime.Gosched()
		if done, open = t.attempt(); done {
			break
		}
		if l.Yields > 0 && tries%l.Yields == 0 {
			_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
		}
		took, alone = time.Since(began), l.Alone()
	}
	switch {
	case done:
		l.vain = 0
		took = time.Since(began)
	case alone:
		l.vain = min(l.vain+1, mostVain)
		l.passes.Store(1<<l.vain - 1)
	case took == 0:
		return false // it did not even begin
	}
	l.Told(done, min(took, l.Most)) // the rest belonged to other programs
	return done
}
