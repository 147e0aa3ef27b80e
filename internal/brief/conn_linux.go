package brief

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// Conn returns conn with other Read and Write methods, or conn itself if it has no
// descriptor. Write may be mixed with that of conn; whoever has called Read calls
// Settle before conn is read, or is closed in good order. Errors other than io.EOF
// are *net.OpError or *os.SyscallError.
func Conn(conn net.Conn) net.Conn {
	own, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := own.SyscallConn()
	if err != nil {
		return conn // closed
	}
	c := &quiet{Conn: conn, control: raw.Control}
	if _, local := conn.(*net.UnixConn); local {
		c.looks = c.control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, soPeekOff, 0)
		}) == nil && err == nil
	}
	c.in.begin("read", c.look, raw.Read, raw.Control)
	c.out.begin("write", write, raw.Write, raw.Control)
	c.drop = c.discard
	return c
}

// soPeekOff is SO_PEEK_OFF: a read that only looks begins behind what was looked at.
const soPeekOff = 42

type quiet struct {
	net.Conn

	in, out transfer
	looks   bool // a Unix socket, whose small reads leave the bytes in the kernel
	control func(func(fd uintptr)) error
	drop    func(fd uintptr) // discard, made once

	left   atomic.Int64 // bytes that were read and are still in the kernel; grows with in.mu, shrinks with taking
	taking sync.Mutex
	listed atomic.Bool // with those who have something left
}

const (
	// lookMost is for how many bytes a reader has room who only looks at them, and
	// takes them out later. One with more room expects many, whose batches matter
	// more than who is woken.
	lookMost = 4 << 10
	// leaveMost is how many bytes are left in the kernel before they are taken out
	// all at once: several requests, and little beside the 200 KB that a socket holds.
	leaveMost = 2 << 10
)

// Read implements net.Conn.
func (c *quiet) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if left := c.left.Load(); left > 0 {
		runtime.Gosched() // whoever has something to do because of them goes first
		if left >= leaveMost || len(b) > lookMost {
			c.takeOut()
		}
	}
	n, err := c.in.some(b)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// look reads, and leaves in the kernel what it has read if that may be little: the
// next one sees what comes after it (SO_PEEK_OFF).
func (c *quiet) look(fd uintptr, b []byte) (int, syscall.Errno) {
	if !c.looks || len(b) > lookMost {
		return read(fd, b)
	}
	n, errno := peek(fd, b)
	if errno == 0 && n > 0 {
		c.left.Add(int64(n))
		leavers.add(c)
	}
	return n, errno
}

// takeOut takes what was read out of the kernel. On a closed connection, which has
// nothing left, it fails.
func (c *quiet) takeOut() {
	c.taking.Lock()
	defer c.taking.Unlock()
	if c.left.Load() > 0 && c.control(c.drop) != nil {
		c.left.Store(0)
	}
}

// discard is what takeOut does with the descriptor.
func (c *quiet) discard(fd uintptr) {
	var scrap [1 << 10]byte
	for left := c.left.Load(); left > 0; {
		n, errno := read(fd, scrap[:min(left, int64(len(scrap)))])
		switch {
		case errno == syscall.EINTR:
			continue
		case errno != 0 || n <= 0:
			c.left.Store(0) // somebody else has read it
			return
		}
		left = c.left.Add(-int64(n))
	}
}

// Settle takes out of the kernel what was read of conn, which Conn has returned.
// That is left to be done for some milliseconds. A connection that is closed without
// it ends with a reset for the other end, after all that was written.
func Settle(conn net.Conn) {
	if c, ok := conn.(*quiet); ok {
		c.takeOut()
	}
}

// Write implements net.Conn.
func (c *quiet) Write(b []byte) (n int, err error) { return c.out.all(b) }

// transfer is one direction of a connection.
type transfer struct {
	mu      sync.Mutex // held by the one who reads, or writes
	wait    func(func(fd uintptr) bool) error
	control func(func(fd uintptr)) error
	call    func(fd uintptr, b []byte) (int, syscall.Errno)
	name    string
	lookout *Lookout              // nil: it waits at once
	once    func(fd uintptr) bool // try, made once
	trial   func(fd uintptr)      // try for attempt, made once

	b     []byte
	n     int
	errno syscall.Errno
	done  bool // trial found that it need not wait
}

// begin makes it ready. The call is made with the descriptor that wait and control know.
func (t *transfer) begin(name string, call func(uintptr, []byte) (int, syscall.Errno), wait func(func(uintptr) bool) error, control func(func(uintptr)) error) {
	t.name, t.call, t.wait, t.control = name, call, wait, control
	t.once = t.try
	t.trial = func(fd uintptr) { t.done = t.try(fd) }
}

// all moves all of b, unless there is an error.
func (t *transfer) all(b []byte) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n < len(b) && err == nil {
		var more int
		more, err = t.some(b[n:])
		n += more
	}
	return n, err
}

// some waits until the connection has bytes, or takes some, and moves them.
func (t *transfer) some(b []byte) (int, error) {
	t.b, t.n, t.errno = b, 0, 0
	var err error
	if !t.lookout.look(t) {
		err = t.wait(t.once)
	}
	t.b = nil
	switch {
	case err != nil:
		return 0, err // a deadline, or the connection is closed
	case t.errno != 0:
		return 0, os.NewSyscallError(t.name, t.errno)
	}
	return t.n, nil
}

// attempt is one try. It is not done if it would have to wait, and cannot be if the
// connection is closed.
func (t *transfer) attempt() (done, open bool) {
	t.done = false
	open = t.control(t.trial) == nil
	return t.done, open
}

// try reports false if it would have to wait: Go's descriptors never block.
func (t *transfer) try(fd uintptr) bool {
	for {
		n, errno := t.call(fd, t.b)
		switch errno {
		case 0:
			t.n = n
			return true
		case syscall.EAGAIN:
			return false
		case syscall.EINTR:
		default:
			t.errno = errno
			return true
		}
	}
}
