package brief

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Conn returns conn with other Read and Write methods, or conn itself if it has no
// descriptor. They may be mixed with those of conn. Errors other than io.EOF are
// *net.OpError or *os.SyscallError.
func Conn(conn net.Conn) net.Conn {
	own, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := own.SyscallConn()
	if err != nil {
		return conn // closed
	}
	c := &quiet{Conn: conn}
	c.in = transfer{wait: raw.Read, call: read, name: "read"}
	c.out = transfer{wait: raw.Write, call: write, name: "write"}
	c.in.once, c.out.once = c.in.try, c.out.try
	return c
}

type quiet struct {
	net.Conn

	in, out transfer
}

// Read implements net.Conn.
func (c *quiet) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	n, err := c.in.some(b)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
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
