package api

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"time"
)

// ServeUnix is Serve for a Unix socket, whose callers may use frames instead of HTTP:
// the first byte of a connection decides. { begins a frame.
func (h *Handler) ServeUnix(ctx context.Context, l net.Listener, handler http.Handler, errorLog *log.Logger) error {
	c := h.newConnections()
	d := &demux{h: h, listener: l, connections: c, http: make(chan incoming), frames: make(chan incoming)}
	d.ctx, d.stop = context.WithCancel(ctx)
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
	ctx         context.Context // done: no connection is handed over any more
	stop        context.CancelFunc
}

// incoming is a connection, or the listener's error.
type incoming struct {
	conn net.Conn
	err  error
}

// accept takes connections until the listener is closed. net/http gets the errors of the
// listener. It waits before it accepts again, and accept waits with it.
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
// idle: it is closed after HeaderTimeout, to make room, or when demux is closed.
func (d *demux) route(conn net.Conn) {
	timed := &timedConn{Conn: conn, connections: d.connections}
	d.connections.changed(timed, http.StateNew)
	_ = conn.SetReadDeadline(time.Now().Add(d.h.cfg.HeaderTimeout)) // fails on a closed connection only, and then the read does too
	keep := context.AfterFunc(d.ctx, func() { _ = conn.Close() })
	_, err := timed.Read(timed.first[:])
	handed := false
	if keep() && err == nil {
		timed.unread = true
		_ = conn.SetReadDeadline(time.Time{}) // the server and the session set their own
		to := d.http
		if timed.first[0] == '{' {
			d.connections.changed(timed, http.StateActive)
			timed.phase.Store(inFrames)
			to = d.frames
		}
		handed = d.hand(to, incoming{conn: timed})
	}
	if !handed {
		_ = timed.Close()
	}
}

// hand reports false if nothing is accepted any more.
func (d *demux) hand(to chan<- incoming, a incoming) bool {
	select {
	case to <- a:
		return true
	case <-d.ctx.Done():
		return false
	}
}

// close closes the listener and the connections that have sent nothing.
func (d *demux) close() error {
	d.stop()
	return d.listener.Close()
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
	case <-b.d.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (b branch) Close() error { return b.d.close() }

// Addr implements net.Listener.
func (b branch) Addr() net.Addr { return b.d.listener.Addr() }
