package brief

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
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
	_, local := conn.(*net.UnixConn)
	c := &quiet{Conn: conn, local: local, control: raw.Control}
	c.in = transfer{wait: raw.Read, call: c.look, name: "read"}
	c.out = transfer{wait: raw.Write, call: write, name: "write"}
	c.in.once, c.out.once, c.drop = c.in.try, c.out.try, c.discard
	return c
}

type quiet struct {
	net.Conn

	in, out transfer
	local   bool // a Unix socket
	control func(func(fd uintptr)) error
	drop    func(fd uintptr) // discard, made once
	left    int              // bytes that were read and are still in the kernel; with in.mu
}

// lookMost is for how many bytes a reader has room who only looks at them, and
// takes them out later. One with more room expects many, whose batches matter more
// than who is woken.
const lookMost = 4 << 10

// Read implements net.Conn.
func (c *quiet) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if c.left > 0 {
		runtime.Gosched() // whoever has something to do because of them goes first
		c.takeOut()
	}
	n, err := c.in.some(b)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// look reads, and leaves in the kernel what it has read if that may be little.
func (c *quiet) look(fd uintptr, b []byte) (int, syscall.Errno) {
	if !c.local || len(b) > lookMost {
		return read(fd, b)
	}
	n, errno := peek(fd, b)
	if errno == 0 {
		c.left = n
	}
	return n, errno
}

// takeOut takes what was read out of the kernel.
func (c *quiet) takeOut() {
	_ = c.control(c.drop) // fails on a closed connection only, which has nothing left
	c.left = 0
}

// discard is what takeOut does with the descriptor.
func (c *quiet) discard(fd uintptr) {
	var scrap [1 << 10]byte
	for c.left > 0 {
		n, errno := read(fd, scrap[:min(c.left, len(scrap))])
		if errno != syscall.EINTR && (errno != 0 || n <= 0) {
			return // somebody else has read it
		}
		c.left -= max(n, 0)
	}
}

// Settle takes out of the kernel what was read of conn, which Conn has returned.
// Before the next Read that is left to be done. A connection that is closed without
// it ends with a reset for the other end, after all that was written.
func Settle(conn net.Conn) {
	c, ok := conn.(*quiet)
	if !ok {
		return
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if c.left > 0 {
		c.takeOut()
	}
}

// Write implements net.Conn.
func (c *quiet) Write(b []byte) (n int, err error) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	for n < len(b) && err == nil {
		var more int
		more, err = c.out.some(b[n:])
		n += more
	}
	return n, err
}

// transfer is one direction of a connection.
type transfer struct {
	mu   sync.Mutex // held by the one who reads, or writes
	wait func(func(fd uintptr) bool) error
	call func(fd uintptr, b []byte) (int, syscall.Errno)
	name string
	once func(fd uintptr) bool // try, made once

	b     []byte
	n     int
	errno syscall.Errno
}

// some waits until the connection has bytes, or takes some, and moves them.
func (t *transfer) some(b []byte) (int, error) {
	t.b, t.n, t.errno = b, 0, 0
	err := t.wait(t.once)
	t.b = nil
	switch {
	case err != nil:
		return 0, err // a deadline, or the connection is closed
	case t.errno != 0:
		return 0, os.NewSyscallError(t.name, t.errno)
	}
	return t.n, nil
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
