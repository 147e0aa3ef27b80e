package workerproto

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// LargeFrames are the places for the frames of more than 64 KiB that the dispatcher is reading. A user without a free place
// waits, so its peers cannot make the dispatcher keep a large buffer for each of their connections.
var LargeFrames = quota.NewPlaces(64)

// serverConn is the dispatcher's end of a connection. It reads lines and sends frames,
// but does not decode lines. Session and CallerSession embed it.
type serverConn struct {
	transport
	nonce  string
	peer   Peer
	user   string // of the peer
	guest  bool   // the peer has not proved who it is, so the connection counts for no user
	server *server
	remote bool // see the function remote
	limits Limits
	obs    Observer

	refused atomic.Int32 // frames for which the reader has not rested yet

	end  context.Context         // done when the session has ended
	fail context.CancelCauseFunc // records the cause of the end; the first one counts
}

func newServerConn(conn net.Conn, limits Limits, obs Observer) *serverConn {
	c := &serverConn{nonce: newNonce(), peer: PeerOf(conn), limits: limits, obs: obs}
	c.end, c.fail = context.WithCancelCause(context.Background())
	c.conn, c.user, c.remote = conn, c.peer.User(), remote(conn)
	if c.remote && limits.Identify != nil {
		c.guest, c.user = true, "address "+c.peer.Address
	}
	c.in = lines{conn: conn, max: limits.MaxFrame, large: func() func() {
		leave, _ := LargeFrames.Enter(context.Background(), c.user) // without a deadline it does not fail
		return leave
	}}
	c.out = newOutbox(conn, limits.Outbox, limits.WriteTimeout, obs.Sent)
	if limits.Hold != nil {
		c.out.hold = func(n int) error { return limits.Hold(c.user, n) }
	}
	c.out.session = c.nonce
	c.heartbeat, c.timeout = limits.HeartbeatInterval, limits.HeartbeatTimeout
	return c
}

// newNonce makes a session's nonce: 128 random bits.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand documents that Read never fails
	return hex.EncodeToString(b[:])
}

// Nonce returns the random identifier of the session.
func (c *serverConn) Nonce() string { return c.nonce }

// Peer returns the process that connected, as the kernel reports it.
func (c *serverConn) Peer() Peer { return c.peer }

// identify asks who the peer is, and counts its connection. It removes the token.
func (c *serverConn) identify(token *string) *Error {
	if !c.guest {
		*token = ""
		return nil
	}
	peer, objection := c.limits.Identify(c.conn, *token)
	*token = ""
	if objection != "" {
		return Complain(Refused, "%s", objection)
	}
	c.peer, c.user = peer, peer.User()
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.server.countLocked(c)
}

// welcome returns the answer to a valid hello of a peer that speaks versions up to highest.
func (c *serverConn) welcome(highest int, remote bool) *Welcome {
	return &Welcome{
		Version: min(highest, MaxVersion), Session: c.nonce, Dispatcher: c.limits.Dispatcher, Limits: c.limits.parameters(remote),
	}
}

// tlsRecord is the first byte of a TLS handshake.
const tlsRecord = 0x16

// Remote reports whether the end of the connection does not prove the end of its peer.
func (c *serverConn) Remote() bool { return c.remote }

// pong returns the answer to a ping.
func (c *serverConn) pong() *Pong {
	if !c.remote {
		return pong
	}
	return &Pong{Keep: c.limits.keep()}
}

// firstLine waits for one complete line, at most for HelloTimeout.
func (c *serverConn) firstLine() ([]byte, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(c.limits.HelloTimeout)) // as in transport.read
	if err := c.ending(); err != nil {
		return nil, err
	}
	var line []byte
	err := c.in.read()
	if err == nil {
		if c.in.buf[c.in.start] == tlsRecord {
			return nil, Complain(BadJSON, "this is a TLS handshake, and the listener has no TLS: connect with tcp:// on its host, or "+
				"give the dispatcher --tls-cert and --tls-key")
		}
		line, err = c.in.wait()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = Complain(HelloTimeout, "no hello within %v", c.limits.HelloTimeout)
	}
	return line, err
}

// send queues a frame and never blocks. It returns false if the session has ended. It
// also returns false if the outbox is full; then it ends the session.
func (c *serverConn) send(f frame) bool {
	err := c.put(f)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		// No error frame is sent, because the peer would not read it either.
		c.abort(Complain(SlowReader, "%v", err))
		c.obs.Complained(SlowReader)
	}
	return err == nil
}

// put queues a frame. It counts a frame that says that something was refused, because the peer may repeat it at once.
func (c *serverConn) put(f frame) error {
	refuses := false
	switch f := f.(type) {
	case *Spawned:
		refuses = f.Rule != ""
	case *Answer:
		refuses = f.RetryAfter > 0 || f.Code == CodeInvalidRequest || f.Code == CodeInvalidJob
	case *Error:
		refuses = true
	}
	if refuses {
		c.refused.Add(1)
	}
	return c.out.put(f)
}

// rest delays the next read for what was refused.
func (c *serverConn) rest() {
	if n := c.refused.Swap(0); n > 0 {
		quota.Rest(c.user, int(n))
	}
}

// Close ends the session. The writer writes the queued frames, then err if it is not
// nil, and closes the connection. Close does not wait for the writer. Later calls
// change nothing.
func (c *serverConn) Close(err *Error) {
	if err == nil {
		c.fail(net.ErrClosed)
		c.out.close(nil)
	} else {
		err.Fatal = true
		c.fail(err)
		c.obs.Complained(err.Code)
		c.out.close(err)
	}
	_ = c.conn.SetReadDeadline(time.Now()) // ends the wait for a hello, before which there is no writer
}

// ending returns the cause of the end, or nil while the session is open.
func (c *serverConn) ending() error { return context.Cause(c.end) }

// abort ends the session at once. Blocked reads and writes return.
func (c *serverConn) abort(cause error) {
	c.fail(cause)
	c.out.discard()
	_ = Unwrapped(c.conn).Close() // nothing is left to be sent; the end of a TLS connection is a message, which may have to wait
}

// finish makes the writer end. If the peer broke a rule, the writer first sends the
// error.
func (c *serverConn) finish(cause error) {
	if rule, ok := errors.AsType[*Error](cause); ok && c.ending() == nil {
		if rule.Code == HeartbeatTimeout {
			c.out.clear() // the dispatcher is about to take the queued jobs from the worker
		}
		c.Close(rule)
		return
	}
	c.fail(cause)
	c.out.close(nil)
}

// write is the writer goroutine. It runs the outbox until its end. If the outbox was
// closed, write closes the connection, unless linger keeps it readable. If the peer is
// gone, write leaves the connection open, so that the reader can still read everything
// that the peer sent before.
func (c *serverConn) write(done chan<- struct{}) {
	defer close(done)
	err := c.out.write()
	switch {
	case err == nil && c.linger():
	case err == nil:
		_ = c.conn.Close()
	case errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe):
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.obs.Complained(SlowReader)
		c.abort(Complain(SlowReader, "nothing was read for %v", c.limits.WriteTimeout))
	default:
		c.abort(err)
	}
}

// lingerTime limits how long frames are read after a ShuttingDown was sent.
const lingerTime = time.Second

// linger keeps a session readable after a ShuttingDown, because reports that the worker
// sent before it read the ShuttingDown still count. It returns false if the connection
// must be closed at once: its directions cannot be closed separately, or it is closed already.
func (c *serverConn) linger() bool {
	rule, ok := errors.AsType[*Error](c.ending())
	half, can := c.conn.(interface{ CloseWrite() error })
	if !ok || rule.Code != ShuttingDown || !can || half.CloseWrite() != nil {
		return false
	}
	time.AfterFunc(lingerTime, func() { _ = c.conn.Close() })
	return true
}
