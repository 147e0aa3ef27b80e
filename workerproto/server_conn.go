package workerproto

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// serverConn is the dispatcher's end of a connection. It knows frames only as
// lines and as entries of the outbox; sessions embed it.
type serverConn struct {
	transport
	nonce  string
	peer   Peer
	limits Limits
	obs    Observer
	cause  error // why the session ends: the first cause; guarded by transport.mu
}

func newServerConn(conn net.Conn, limits Limits, obs Observer) *serverConn {
	c := &serverConn{nonce: newNonce(), peer: PeerOf(conn), limits: limits, obs: obs}
	c.conn = conn
	c.in = lines{conn: conn, max: limits.MaxFrame}
	c.out = newOutbox(conn, limits.Outbox, limits.WriteTimeout, obs.Sent)
	c.heartbeat, c.timeout = limits.HeartbeatInterval, limits.HeartbeatTimeout
	return c
}

// newNonce makes a session's nonce: 128 random bits.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	return hex.EncodeToString(b[:])
}

// Nonce returns the random identifier of the session.
func (c *serverConn) Nonce() string { return c.nonce }

// Peer returns the process that connected, as the kernel reports it.
func (c *serverConn) Peer() Peer { return c.peer }

// firstLine waits for one complete line, at most for HelloTimeout.
func (c *serverConn) firstLine() ([]byte, error) {
	now := time.Now()
	c.setReadDeadline(now, now.Add(c.limits.HelloTimeout))
	line, err := c.in.wait()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = Complain(HelloTimeout, 0, "no hello within %v", c.limits.HelloTimeout)
	}
	return line, err
}

// send queues a frame and never blocks. It reports false if the session has
// ended, or ends now because its outbox is full.
func (c *serverConn) send(f frame) bool {
	switch c.out.put(f, true) {
	case putOK:
		return true
	case putFull:
		// An error frame would not be read either.
		c.abort(Complain(SlowReader, 0, "too many frames wait to be read"))
		c.obs.Complained(SlowReader)
	}
	return false
}

// Close ends the session: queued frames are written, then err (nil for none),
// then the connection is closed. Close does not wait for that. Later calls
// change nothing.
func (c *serverConn) Close(err *Error) {
	if err == nil {
		c.fail(net.ErrClosed)
		c.out.close(nil)
		return
	}
	err.Fatal = true
	c.fail(err)
	c.obs.Complained(err.Code)
	c.out.close(err)
}

// fail records the cause of the end. The first cause counts.
func (c *serverConn) fail(cause error) {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = cause
	}
	c.mu.Unlock()
}

// ending returns the cause of the end, nil while the session goes on.
func (c *serverConn) ending() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// abort ends the session at once. Blocked reads and writes return.
func (c *serverConn) abort(cause error) {
	c.fail(cause)
	c.out.discard()
	_ = c.conn.Close() // nothing is left to be sent
}

// finish ends the writer. If the peer broke a rule, the error is sent first.
func (c *serverConn) finish(cause error) {
	var rule *Error
	if errors.As(cause, &rule) && c.ending() == nil {
		if rule.Code == HeartbeatTimeout {
			c.out.clear() // the jobs in it are about to be taken from the worker
		}
		c.Close(rule)
		return
	}
	c.fail(cause)
	c.out.close(nil)
}

// write runs the outbox until its end, and closes the connection if the end was
// ordered. If the peer is gone, what it wrote before is still to be read: the
// reader continues to the end of the stream.
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
		c.abort(Complain(SlowReader, 0, "nothing was read for %v", c.limits.WriteTimeout))
	default:
		c.abort(err)
	}
}

// lingerTime limits how long frames are read that crossed a ShuttingDown.
const lingerTime = time.Second

// linger keeps a session that ends with ShuttingDown readable: reports that are
// on their way still count. It reports false if the connection is to be closed
// at once.
func (c *serverConn) linger() bool {
	var rule *Error
	return errors.As(c.ending(), &rule) && rule.Code == ShuttingDown && c.closeWrite(lingerTime)
}
