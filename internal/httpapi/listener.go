package httpapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Serve answers on a listener until ctx is done. Then it waits up to shutdownGrace for responses in progress. It returns the error of the
// listener, or nil if ctx ended it. Callers may use frames instead of HTTP. A connection with TLS uses frames if it has negotiated their
// protocol. Any other connection uses frames if its first byte is an opening brace. If guests is true, callers must prove who they are,
// and h.Identify decides.
func (h *Handler) Serve(ctx context.Context, l net.Listener, guests bool, handler http.Handler, errorLog *log.Logger) error {
	c := h.newConnections(guests)
	web := NewRelay(ctx, l)
	frames := web.branch()
	go web.Run(func(conn net.Conn) {
		caller := &callerConn{Conn: conn, connections: c}
		c.changed(caller, http.StateNew) // in the order in which they arrive, so that the oldest idle one makes room
		go h.route(caller, web, frames)
	})
	ended := make(chan error, 1)
	go func() { ended <- h.serveFrames(ctx, frames, c) }()
	err := h.serve(ctx, web, c, handler, errorLog)
	_ = web.Close() // serve may have ended because net/http failed
	if failed := <-ended; !errors.Is(failed, net.ErrClosed) {
		err = cmp.Or(err, failed)
	}
	return err
}

// route passes a connection to HTTP or to frames. Without TLS it reads the first byte of the connection. A connection that sends nothing
// counts as idle. It is closed after HeaderTimeout, or to make room, or when the relays are closed.
func (h *Handler) route(c *callerConn, web, frames *Relay) {
	_ = c.SetReadDeadline(time.Now().Add(h.cfg.HeaderTimeout)) // fails only on a closed connection, and then the read fails, too
	keep := context.AfterFunc(web.Closed, func() { _ = c.Conn.Close() })
	framed, err := c.framed()
	handed := false
	if keep() && err == nil {
		_ = c.SetReadDeadline(time.Time{}) // HTTP and frames set their own deadlines
		to := web
		if framed {
			c.connections.changed(c, http.StateActive)
			to = frames
		}
		handed = to.Pass(c, nil)
	}
	if !handed {
		_ = c.Close()
	}
}

// framed reports whether a connection uses frames. Without TLS it reads the first byte.
func (c *callerConn) framed() (bool, error) {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		return secure.ConnectionState().NegotiatedProtocol == workerproto.CallerProtocol, nil
	}
	first := make([]byte, 1)
	_, err := c.Conn.Read(first)
	c.unread = first
	return first[0] == '{', err
}

// callerConn is a connection of a caller.
type callerConn struct {
	net.Conn

	connections *connections
	unread      []byte // what route has read and Read has not returned
}

// Read implements net.Conn.
func (c *callerConn) Read(b []byte) (int, error) {
	if len(c.unread) == 0 || len(b) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// Close implements net.Conn. net/http does not report the end of a connection with frames.
func (c *callerConn) Close() error {
	c.connections.changed(c, http.StateClosed)
	return c.Conn.Close()
}

// NetConn returns the connection itself without TLS, so that workerproto.PeerOf can identify the peer.
func (c *callerConn) NetConn() net.Conn { return workerproto.Unwrapped(c.Conn) }

// Bounds of the answers to rejected connections. A connection beyond them is closed without
// an answer.
const (
	rejectionsAtOnce = 64
	rejectionTime    = 100 * time.Millisecond
)

// Reject closes a connection to the Unix socket that exceeds the connection rate of its
// user. It does not block. The caller gets the reason as a response or as a frame,
// depending on the first byte that it sends.
func (h *Handler) Reject(conn net.Conn, reason string) {
	h.obs.Refused(BoundConnectionRate)
	select {
	case h.rejections <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	go func() {
		defer func() {
			_ = conn.Close()
			<-h.rejections
		}()
		_ = conn.SetDeadline(time.Now().Add(rejectionTime)) // fails only on a closed connection
		var request [4096]byte
		if n, err := conn.Read(request[:]); n == 0 || err != nil {
			return
		}
		if request[0] == '{' {
			_, _ = conn.Write(workerproto.Append(nil, workerproto.Complain(workerproto.TooManyConnections, "%s", reason)))
			return
		}
		p := rest.QueueFull.Of(reason).Retryable()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d Too Many Requests\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"+
			"Connection: close\r\nContent-Length: %d\r\n\r\n%s", p.Status, len(p.Text()), p.Text())
	}()
}
