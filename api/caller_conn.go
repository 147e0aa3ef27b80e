package api

import (
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
)

// callerConn is a connection as net/http has it. It counts the timeouts that
// net/http keeps to itself.
type callerConn struct {
	net.Conn

	rest  []byte // read ahead, by watch, or when the connection was a plainConn
	obs   Observer
	phase atomic.Int32
}

// The phases of a connection, which say what a read waits for.
const (
	inHeaders int32 = iota
	inRequest       // its body; and net/http lets deadlines pass to wake its own reader
	inPause         // between two requests
)

// Read implements net.Conn.
func (c *callerConn) Read(b []byte) (int, error) {
	if len(b) == 1 && c.phase.Load() == inRequest {
		return c.watch(b)
	}
	if len(c.rest) > 0 {
		c.phase.CompareAndSwap(inPause, inHeaders)
		return c.take(b), nil
	}
	n, err := c.Conn.Read(b)
	switch late := errors.Is(err, os.ErrDeadlineExceeded); {
	case n > 0:
		c.phase.CompareAndSwap(inPause, inHeaders)
	case late && c.phase.CompareAndSwap(inHeaders, inRequest): // net/http tries more than once; one end is one hit
		c.obs.Refused(BoundHeaderTime)
	case late && c.phase.CompareAndSwap(inPause, inRequest):
		c.obs.Refused(BoundIdleTime)
	}
	return n, err
}

// take hands out what was read ahead.
func (c *callerConn) take(b []byte) (n int) {
	n = copy(b, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.rest = nil
	}
	return n
}

// watch is the read of one byte by which net/http notices that the caller of a
// request under way hangs up. A byte of a request that was sent ahead would end
// it, and hide the hanging up from then on; so this reads on as long as there is
// room, until net/http wakes it by a deadline that is over. No other read is of
// one byte, but for trailers that leave just so much of net/http's buffer; they
// count as late.
func (c *callerConn) watch(b []byte) (int, error) {
	for len(c.rest) < plainSize {
		room := b
		if len(c.rest) > 0 { // nearly nobody sends ahead: only who does costs more
			c.rest = slices.Grow(c.rest, plainSize-len(c.rest))
			room = c.rest[len(c.rest):plainSize]
		}
		n, err := c.Conn.Read(room)
		if len(c.rest) == 0 {
			c.rest = append(c.rest, b[:n]...)
		} else {
			c.rest = c.rest[:len(c.rest)+n]
		}
		if err != nil {
			return 0, err
		}
	}
	return c.take(b), nil
}

// Write implements net.Conn.
func (c *callerConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.obs.Refused(BoundWriteTime)
	}
	return n, err
}

// changed notes what the server says of the connection.
func (c *callerConn) changed(state http.ConnState) {
	switch state {
	case http.StateNew:
		c.phase.Store(inHeaders)
	case http.StateActive:
		c.phase.Store(inRequest)
	case http.StateIdle:
		c.phase.Store(inPause)
	}
}

// bareConn is the connection that the kernel knows.
func bareConn(c net.Conn) net.Conn {
	if own, ok := c.(*callerConn); ok {
		return own.Conn
	}
	return c
}

// callerListener makes a callerConn of whoever connects.
type callerListener struct {
	net.Listener

	obs Observer
}

// Accept implements net.Listener.
func (l callerListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &callerConn{Conn: conn, obs: l.obs}, nil
}
