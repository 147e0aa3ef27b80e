package workerproto

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// server accepts connections and runs a session on each of them. The protocol of a
// session decides what happens with its frames.
type server struct {
	limits   Limits
	obs      Observer
	protocol func(*serverConn) protocol
	running  sync.WaitGroup

	mu       sync.Mutex
	open     map[*serverConn]struct{} // including connections in the handshake
	users    *quota.Quota             // of the open connections
	stopping bool
}

// protocol handles the frames of one connection. All calls come from the
// connection's reader goroutine.
type protocol interface {
	// handshake handles the first line and sends the welcome. Every error ends the
	// connection. The server sends an *Error to the peer.
	handshake(line []byte) error
	// take handles one line. An error is fatal, and the server sends it to the peer.
	take(line []byte) *Error
	// deliver passes the frames of all taken lines to the handler.
	deliver()
	// closed is called exactly once, after the last deliver, if handshake returned
	// nil.
	closed(cause error)
}

// serve accepts connections from the listeners until ctx is done. Then it closes them, ends
// all sessions with ShuttingDown, and returns when the last one has closed.
func serve(ctx context.Context, from []net.Listener, limits Limits, obs Observer, p func(*serverConn) protocol) error {
	if obs == nil {
		obs = NoObserver{}
	}
	srv := &server{limits: limits.WithDefaults(), obs: obs, protocol: p, open: make(map[*serverConn]struct{})}
	srv.users = quota.New(srv.limits.MaxConnections)
	end := sync.OnceFunc(func() {
		for _, l := range from {
			_ = l.Close() // makes Accept return
		}
		srv.shutDown()
	})
	stop := context.AfterFunc(ctx, end)
	defer stop()
	ended := make(chan error, len(from))
	for _, l := range from {
		go func() { ended <- srv.accept(ctx, l) }()
	}
	err := <-ended
	end() // path and lock are free when Serve returns
	for range from[1:] {
		err = cmp.Or(err, <-ended)
	}
	srv.running.Wait()
	if ctx.Err() != nil {
		err = nil // the listener was closed above
	}
	return err
}

// acceptPause is the pause after a failed accept.
const acceptPause = 100 * time.Millisecond

// accept takes connections until the listener is closed.
func (srv *server) accept(ctx context.Context, l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err == nil {
			srv.admit(conn)
			continue
		}
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return err
		}
		srv.obs.AcceptFailed(err)
		select {
		case <-ctx.Done():
		case <-time.After(acceptPause):
		}
	}
}

// admit starts a session, or rejects the connection in one write.
func (srv *server) admit(conn net.Conn) {
	c := newServerConn(conn, srv.limits, srv.obs)
	c.server = srv
	var objection *Error
	srv.mu.Lock()
	switch {
	case srv.stopping:
		objection = Complain(ShuttingDown, "the dispatcher stops")
	case !c.guest:
		objection = srv.countLocked(c)
	}
	if objection == nil {
		srv.open[c] = struct{}{}
		srv.running.Add(1)
	}
	n := len(srv.open)
	srv.mu.Unlock()
	if objection != nil {
		Reject(conn, srv.obs, objection)
		return
	}
	srv.obs.Connections(n)
	go srv.run(c)
}

// countLocked counts a connection for its user, unless that exceeds the share of the user.
func (srv *server) countLocked(c *serverConn) *Error {
	if !srv.users.Fits(c.user, 1) {
		return Complain(TooManyConnections, "%s", srv.users.Objection(c.user, 1, "connections"))
	}
	srv.users.Add(c.user, 1)
	c.guest = false
	return nil
}

// Reject answers a fresh connection with an error and closes it. It does not block.
func Reject(conn net.Conn, obs Observer, err *Error) {
	obs.Complained(err.Code)
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(Append(nil, err)) // does not block: it fits into the buffer of a fresh socket
	_ = conn.Close()
}

func (srv *server) shutDown() {
	srv.mu.Lock()
	srv.stopping = true
	all := slices.Collect(maps.Keys(srv.open))
	srv.mu.Unlock()
	for _, c := range all {
		c.Close(Complain(ShuttingDown, "the dispatcher stops; reconnect"))
	}
}

// run is the reader goroutine. It serves one connection until its end.
func (srv *server) run(c *serverConn) {
	defer srv.running.Done()
	p := srv.protocol(c)
	written := make(chan struct{})
	cause := c.greet(p)
	opened := cause == nil
	go c.write(written)
	if opened {
		cause = c.converse(p)
	}
	c.in.free()
	c.finish(cause)
	<-written
	_ = c.conn.Close() // a lingering connection is still open
	srv.mu.Lock()
	delete(srv.open, c)
	if !c.guest {
		srv.users.Add(c.user, -1)
	}
	n := len(srv.open)
	srv.mu.Unlock()
	if opened {
		p.closed(c.ending())
	}
	srv.obs.Connections(n)
}

// greet performs the handshake.
func (c *serverConn) greet(p protocol) (err error) {
	defer recovered(&err)
	line, err := c.firstLine()
	if err != nil {
		return err
	}
	return p.handshake(line)
}

// converse handles batch after batch until the session ends.
func (c *serverConn) converse(p protocol) (cause error) {
	defer recovered(&cause)
	for {
		from := c.in.start
		var frames int
		var fault *Error
		quota.Parse(c.user, c.in.end-from, func() { frames, fault = c.in.each(p.take) })
		if frames > 0 {
			c.obs.Received(frames, c.in.start-from)
		}
		p.deliver()
		if fault != nil {
			return fault
		}
		c.rest()
		if err := c.read(); err != nil {
			return err
		}
	}
}

// recovered turns a panic of a handler into the end of its session.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("handler panicked: %v\n%s", v, debug.Stack())
	}
}
