package httpapi

import (
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"
)

// timedConn counts the timeouts of a connection, which net/http does not report. It also
// counts the end of the connection.
type timedConn struct {
	net.Conn

	connections *connections
	phase       atomic.Int32
	first       [1]byte // the byte that demux has read to choose the protocol
	unread      bool    // first has not been returned
}

// The phases of a connection. The phase determines which bound a read timeout has
// reached.
const (
	inHeaders int32 = iota
	inRequest       // read timeouts do not count: net/http uses them to interrupt its own reader
	inPause         // between two requests
	inFrames        // frameObserver counts the timeouts
)

// Read implements net.Conn.
func (c *timedConn) Read(b []byte) (int, error) {
	if c.unread && len(b) > 0 {
		b[0], c.unread = c.first[0], false
		return 1, nil
	}
	n, err := c.Conn.Read(b)
	switch late := errors.Is(err, os.ErrDeadlineExceeded); {
	case n > 0:
		c.phase.CompareAndSwap(inPause, inHeaders)
	case late && c.phase.CompareAndSwap(inHeaders, inRequest): // net/http reads again; count one timeout
		c.connections.h.obs.Refused(BoundHeaderTime)
	case late && c.phase.CompareAndSwap(inPause, inRequest):
		c.connections.h.obs.Refused(BoundIdleTime)
	}
	return n, err
}

// Write implements net.Conn.
func (c *timedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && c.phase.Load() != inFrames {
		c.connections.h.obs.Refused(BoundWriteTime)
	}
	return n, err
}

// Close implements net.Conn. net/http does not report the end of a connection with
// frames.
func (c *timedConn) Close() error {
	c.connections.changed(c, http.StateClosed)
	return c.Conn.Close()
}

// NetConn returns the connection itself, so that workerproto.PeerOf can identify the peer.
func (c *timedConn) NetConn() net.Conn { return c.Conn }

// setState follows http.Server.ConnState.
func (c *timedConn) setState(state http.ConnState) {
	switch state {
	case http.StateNew:
		c.phase.Store(inHeaders)
	case http.StateActive:
		c.phase.Store(inRequest)
	case http.StateIdle:
		c.phase.Store(inPause)
	}
}

// timedListener wraps each accepted connection in a timedConn.
type timedListener struct {
	net.Listener

	connections *connections
}

// Accept implements net.Listener.
func (l timedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &timedConn{Conn: conn, connections: l.connections}, nil
}
