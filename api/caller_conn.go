package api

import (
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"
)

// callerConn is a connection as net/http has it. It counts the timeouts that
// net/http keeps to itself.
type callerConn struct {
	net.Conn

	rest  []byte // read already, of a connection that was a plainConn
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
	if len(c.rest) > 0 {
		n := copy(b, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	c.rest = nil
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
