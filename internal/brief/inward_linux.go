package brief

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Inward takes conn over, which the caller forgets, and returns a connection in its
// place whose owner is woken by what comes, and not by the other end taking out what
// was written: only a write that found no room waits for that. It takes out of the
// kernel at once what it reads, and is for a program whose goroutines may compute for
// long (see watch). What is no Unix socket, or cannot be taken over, is returned as it
// is. Errors other than io.EOF are *net.OpError, *os.SyscallError or
// os.ErrDeadlineExceeded.
func Inward(conn net.Conn) net.Conn {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return conn
	}
	c, err := adopt(local)
	if err != nil {
		return conn
	}
	_ = conn.Close() // the descriptor that Go's poller knows; the socket lives on
	return c
}

// inward is a socket that Go's poller does not know: it would ask for both
// directions at once, and is told of room whenever there is more. Instead it knows
// two sets (of epoll), in each of which there is something when the socket is ready
// in one direction. The socket is in the one for writing only while a write waits.
type inward struct {
	net.Conn // closed; it still knows both addresses

	fd      int
	in, out direction
	watch   *watch
	closed  atomic.Bool
	waits   bool // the socket is in the set for writing; with out.mu

	b     []byte // what TryWrite writes; with out.mu
	n     int
	errno syscall.Errno
	trial func(uintptr) // once, made once
}

// direction is a set of at most one socket, and who waits for it.
type direction struct {
	transfer

	set *os.File
}

func adopt(conn *net.UnixConn) (_ *inward, err error) {
	c := &inward{Conn: conn, watch: newWatch()}
	if c.fd, err = duplicate(conn); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.release()
		}
	}()
	if err = c.in.open("read", c.read); err != nil {
		return nil, err
	}
	if err = c.out.open("write", c.write); err != nil {
		return nil, err
	}
	c.trial = c.once
	in := c.in.control(func(set uintptr) {
		err = syscall.EpollCtl(int(set), syscall.EPOLL_CTL_ADD, c.fd, &syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLRDHUP})
	})
	return c, errors.Join(in, err)
}

// duplicate returns another descriptor of the connection's socket.
func duplicate(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var fd uintptr
	var errno syscall.Errno
	err = raw.Control(func(own uintptr) {
		fd, _, errno = syscall.Syscall(syscall.SYS_FCNTL, own, syscall.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil && errno != 0 {
		err = os.NewSyscallError("fcntl", errno)
	}
	if err != nil {
		return -1, err
	}
	return int(fd), nil
}

func (d *direction) open(name string, call func(uintptr, []byte) (int, syscall.Errno)) error {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // else Go's poller would not take it
		_ = syscall.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	d.set = os.NewFile(uintptr(fd), "epoll")
	raw, err := d.set.SyscallConn()
	if err != nil {
		return err
	}
	d.begin(name, call, raw.Read, raw.Control)
	return d.set.SetReadDeadline(time.Time{}) // refused if Go's poller did not take it
}

// read is a transfer's call; the descriptor it is given is that of the set.
func (c *inward) read(_ uintptr, b []byte) (int, syscall.Errno) {
	n, errno := read(uintptr(c.fd), b)
	if n > 0 {
		c.watch.found(c.fd)
	}
	return n, errno
}

// write is like read. One that finds no room waits for it, and leaves the set again
// with the next that finds some.
func (c *inward) write(set uintptr, b []byte) (int, syscall.Errno) {
	n, errno := write(uintptr(c.fd), b)
	if full := errno == syscall.EAGAIN; full != c.waits {
		op := syscall.EPOLL_CTL_DEL
		if full {
			op = syscall.EPOLL_CTL_ADD
		}
		if err := syscall.EpollCtl(int(set), op, c.fd, &syscall.EpollEvent{Events: syscall.EPOLLOUT}); err != nil && full {
			return 0, syscall.ENOMEM // which is what it is short of
		}
		c.waits = full
	}
	return n, errno
}

// Read implements net.Conn.
func (c *inward) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	n, err := c.in.some(b)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, c.reason("read", err)
}

// Write implements net.Conn.
func (c *inward) Write(b []byte) (int, error) {
	n, err := c.out.all(b)
	return n, c.reason("write", err)
}

// TryWrite writes as much as there is room for, and waits for nothing, not even
// another write. Deadlines mean nothing to it.
func (c *inward) TryWrite(b []byte) (int, error) {
	if !c.out.mu.TryLock() {
		return 0, nil
	}
	defer c.out.mu.Unlock()
	c.b, c.n, c.errno = b, 0, 0
	err := c.out.control(c.trial)
	c.b = nil
	if err == nil && c.errno != 0 && c.errno != syscall.EAGAIN && c.errno != syscall.EINTR {
		err = os.NewSyscallError("write", c.errno)
	}
	return max(c.n, 0), c.reason("write", err)
}

func (c *inward) once(uintptr) { c.n, c.errno = write(uintptr(c.fd), c.b) }

// reason is the error for one that a set has given.
func (c *inward) reason(op string, err error) error {
	if err != nil && c.closed.Load() {
		return &net.OpError{Op: op, Net: "unix", Addr: c.RemoteAddr(), Err: net.ErrClosed}
	}
	return err
}

// Close implements net.Conn.
func (c *inward) Close() error {
	if c.closed.Swap(true) {
		return c.reason("close", net.ErrClosed)
	}
	return c.release()
}

// release frees what there is. When a set has been closed nobody reads or writes any more
// who was woken by it.
func (c *inward) release() error {
	c.watch.end()
	var errs []error
	for _, set := range []*os.File{c.in.set, c.out.set} {
		if set != nil {
			errs = append(errs, set.Close())
		}
	}
	return errors.Join(append(errs, os.NewSyscallError("close", syscall.Close(c.fd)))...)
}
