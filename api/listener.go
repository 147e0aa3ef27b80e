package api

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// ServeUnix is Serve for a Unix socket, whose callers may speak frames instead of
// HTTP: the first byte of a connection decides. { begins a frame.
func (h *Handler) ServeUnix(ctx context.Context, l net.Listener, handler http.Handler, errorLog *log.Logger) error {
	c := h.newConnections()
	d := &demux{
		h: h, listener: l, connections: c, closed: make(chan struct{}),
		http: make(chan incoming), frames: make(chan incoming), waiting: map[net.Conn]struct{}{},
	}
	go d.accept()
	ended := make(chan error, 1)
	go func() { ended <- h.serveFrames(ctx, branch{d, d.frames}) }()
	err := h.serve(ctx, branch{d, d.http}, c, handler, errorLog)
	_ = d.close() // also if net/http has failed
	return errors.Join(err, ignoreClosed(<-ended))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// demux accepts connections and hands each to HTTP or to frames.
type demux struct {
	h           *Handler
	listener    net.Listener
	connections *connections
	http        chan incoming
	frames      chan incoming
	closed      chan struct{}
	closing     sync.Once

	mu      sync.Mutex
	waiting map[net.Conn]struct{} // connections that have sent nothing; nil after close
}

// incoming is a connection, or the listener's error.
type incoming struct {
	conn net.Conn
	err  error
}

// accept takes connections until the listener is closed. net/http gets its errors: it
// waits before it accepts again, and accept waits with it.
func (d *demux) accept() {
	for {
		conn, err := d.listener.Accept()
		if err == nil {
			go d.route(conn)
			continue
		}
		if !d.hand(d.http, incoming{err: err}) || errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// route reads the first byte of a connection. A connection that sends none counts as
// idle: it is closed after HeaderTimeout, or to make room.
func (d *demux) route(conn net.Conn) {
	timed := &timedConn{Conn: conn, obs: d.h.obs}
	d.mu.Lock()
	open := d.waiting != nil
	if open {
		d.waiting[conn] = struct{}{}
	}
	d.mu.Unlock()
	if !open {
		_ = conn.Close()
		return
	}
	d.connections.changed(timed, http.StateNew)
	_ = conn.SetReadDeadline(time.Now().Add(d.h.cfg.HeaderTimeout)) // fails on a closed connection only, and then the read does too
	_, err := timed.Read(timed.first[:])
	d.mu.Lock()
	delete(d.waiting, conn)
	d.mu.Unlock()
	handed := false
	switch {
	case err != nil:
	case timed.first[0] == '{':
		timed.unread = true
		d.connections.changed(timed, http.StateActive)
		_ = conn.SetReadDeadline(time.Time{}) // the session sets its own
		handed = d.hand(d.frames, incoming{conn: &frameConn{timedConn: timed, connections: d.connections}})
	default:
		timed.unread = true
		_ = conn.SetReadDeadline(time.Time{})
		handed = d.hand(d.http, incoming{conn: timed})
	}
	if !handed {
		_ = conn.Close()
		d.connections.changed(timed, http.StateClosed)
	}
}

// hand reports false if nothing is accepted any more.
func (d *demux) hand(to chan<- incoming, a incoming) bool {
	select {
	case to <- a:
		return true
	case <-d.closed:
		return false
	}
}

// close closes the listener and the connections that have sent nothing.
func (d *demux) close() error {
	err := net.ErrClosed
	d.closing.Do(func() {
		close(d.closed)
		err = d.listener.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		for conn := range d.waiting { // order-free: each is closed by itself
			_ = conn.Close()
		}
		d.waiting = nil
	})
	return err
}

// branch is the listener of one of the two protocols.
type branch struct {
	d    *demux
	from <-chan incoming
}

// Accept implements net.Listener.
func (b branch) Accept() (net.Conn, error) {
	select {
	case a := <-b.from:
		return a.conn, a.err
	case <-b.d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (b branch) Close() error { return b.d.close() }

// Addr implements net.Listener.
func (b branch) Addr() net.Addr { return b.d.listener.Addr() }

// frameConn is a connection with frames. Its end is counted here, because net/http does
// not report it.
type frameConn struct {
	*timedConn

	connections *connections
	ended       sync.Once
}

// Read implements net.Conn.
func (c *frameConn) Read(b []byte) (int, error) { return c.readFirst(b, c.Conn.Read) }

// Write implements net.Conn.
func (c *frameConn) Write(b []byte) (int, error) { return c.Conn.Write(b) }

// Close implements net.Conn.
func (c *frameConn) Close() error {
	c.ended.Do(func() { c.connections.changed(c.timedConn, http.StateClosed) })
	return c.Conn.Close()
}
