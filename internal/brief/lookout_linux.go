package brief

import (
	"net"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Lookout looks for what comes next on a connection, for a moment, instead of
// letting the program fall asleep: who answers then need not wake a processor, which
// takes longer than many an answer. It belongs to one goroutine. It helps a program
// that keeps to one processor (GOMAXPROCS) of several and has nothing else to do; it
// does nothing where it uses more, where there is one only, which the others need for
// their answer, and while alone does not say so.
//
// It watches itself: after each look that was in vain twice as many are left out as
// after the one before, up to 255.
type Lookout struct {
	conn  *quiet
	look  func(fd uintptr) // made once
	most  time.Duration
	alone func() bool

	there  bool
	vain   int // looks in vain since the last one that was not
	passes int // looks to leave out
}

// NewLookout returns a lookout on conn, which Conn has returned, for at most that
// long, and only as long as alone says that the program has nothing else to do; nil,
// which never looks, if most is 0, alone is nil, or conn is no Unix socket.
func NewLookout(conn net.Conn, most time.Duration, alone func() bool) *Lookout {
	c, ok := conn.(*quiet)
	if !ok || !c.looks || most <= 0 || alone == nil {
		return nil
	}
	l := &Lookout{conn: c, most: most, alone: alone}
	l.look = l.ask
	return l
}

// mostVain bounds how many looks are left out: 2^8 - 1.
const mostVain = 8

// Look returns once there is something to read, the time is over, or the program has
// something else to do, which does not count as in vain. While it looks
// all goroutines with something to do go first, and so do other programs on the
// same processor; what comes on other connections waits. Took is 0 if it did not look.
func (l *Lookout) Look() (found bool, took time.Duration) {
	if l == nil || !l.alone() || runtime.GOMAXPROCS(0) > 1 || runtime.NumCPU() == 1 {
		return false, 0
	}
	if l.passes > 0 {
		l.passes--
		return false, 0
	}
	began, alone := time.Now(), true
	for l.there = false; !l.there && alone && took < l.most; took = time.Since(began) {
		runtime.Gosched()
		_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
		if l.conn.control(l.look) != nil {
			break // closed
		}
		alone = l.alone()
	}
	took = max(min(took, l.most), 1) // the rest belonged to other programs
	if l.there {
		l.vain = 0
		return true, took
	}
	if !alone {
		return false, took
	}
	l.vain = min(l.vain+1, mostVain)
	l.passes = 1<<l.vain - 1
	return false, took
}

// ask sets there if something can be read that was not yet.
func (l *Lookout) ask(fd uintptr) {
	var n int32
	_, _, errno := syscall.RawSyscall(syscall.SYS_IOCTL, fd, syscall.TIOCINQ, uintptr(unsafe.Pointer(&n))) //nolint:gosec // where the kernel writes the number
	l.there = errno == 0 && int64(n) > l.conn.left.Load()
}
