package workerproto

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	clientOutbox  = 4096             // frames that may be queued before Send blocks
	clientTimeout = 15 * time.Second // limit for silence and for one write if the welcome contains none
	welcomeFrame  = 1 << 20          // bytes of a frame before the welcome has named the limit
)

// client is the end of a connection that sends the hello. Conn and CallerConn embed
// it. It works with any kind of frame.
type client struct {
	transport
	welcome Welcome
	decoder *Decoder[DispatcherFrame]
	batch   []DispatcherFrame
	fatal   *Error                    // Receive returns it after the batch: a fatal error frame, or an error about a frame of the dispatcher
	written chan struct{}             // closed when the writer has ended
	until   atomic.Pointer[time.Time] // of a remote worker: when its executions must have ended; see Conn.Keep
}

// start sends the hello, waits for the welcome at most until ctx is done, and starts
// the writer. It closes conn if it returns an error.
func (c *client) start(ctx context.Context, conn net.Conn, hello frame) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c.conn, c.written = conn, make(chan struct{})
	c.in = lines{conn: conn, max: welcomeFrame}
	err := c.handshake(hello)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // its error is no reason
		return err
	}
	limits := c.welcome.Limits
	c.pinged = time.Now()
	c.in.max, c.heartbeat, c.timeout = limits.MaxFrame, limits.Heartbeat, limits.Timeout
	c.out = newOutbox(conn, clientOutbox, limits.Timeout, func(int, int) {})
	c.out.session = c.Session()
	go c.write()
	return nil
}

func (c *client) handshake(hello frame) error {
	if err := c.conn.SetDeadline(time.Now().Add(clientTimeout)); err != nil {
		return err
	}
	begun := time.Now()
	_, _ = c.conn.Write(Append(nil, hello)) // after a write error a refusal may still be readable, and otherwise the read fails, too
	line, err := c.in.wait()
	if err != nil {
		return fmt.Errorf("waiting for the welcome: %w", err)
	}
	f, fault := c.decoder.Decode(line)
	if fault != nil {
		return fmt.Errorf("waiting for the welcome: %w", fault)
	}
	switch f := f.(type) {
	case *Welcome:
		c.welcome = *f
		c.welcome.Limits.setDefaults()
		c.until.Store(&begun)
		c.granted(begun, f.Limits.Resume)
		c.decoder.codec.session = f.Session
		return c.conn.SetDeadline(time.Time{})
	case *Error:
		return f
	}
	return fmt.Errorf("waiting for the welcome: the dispatcher sent %T", f)
}

// granted notes that executions may continue for a time after a frame was sent, which the dispatcher
// has answered. The dispatcher waits for at least this time after the end of the session before it gives
// their jobs to others. A fifth is left for executions to end.
func (c *client) granted(sent time.Time, keep time.Duration) {
	if until := sent.Add(keep / 5 * 4); until.After(*c.until.Load()) {
		c.until.Store(&until)
	}
}

// setDefaults sets the parameters that the dispatcher left out.
func (p *Parameters) setDefaults() {
	setDefault(&p.MaxFrame, welcomeFrame)
	p.MaxFrame = min(p.MaxFrame, math.MaxInt32)
	setDefault(&p.Timeout, clientTimeout)
	if p.Heartbeat <= 0 || p.Heartbeat > p.Timeout {
		p.Heartbeat = p.Timeout / 3
	}
}

// Welcome returns the dispatcher's welcome.
func (c *client) Welcome() Welcome { return c.welcome }

// Session returns the nonce of the session.
func (c *client) Session() string { return c.welcome.Session }

// Receive waits for frames and returns all frames that were read. It handles heartbeats
// itself and omits unknown frames. The slice is valid until the next call.
//
// At the end of the session Receive returns an error. It is an *Error if the dispatcher
// sent a fatal error, sent an invalid frame or was silent for too long. Otherwise it is
// io.EOF or the error of the connection. Only one goroutine may call Receive.
func (c *client) Receive() ([]DispatcherFrame, error) {
	c.batch = emptied(c.batch)
	for {
		if c.fatal == nil {
			_, c.fatal = c.in.each(c.take)
		}
		switch {
		case len(c.batch) > 0:
			return c.batch, nil
		case c.fatal != nil:
			return nil, c.fatal
		}
		if err := c.read(); err != nil {
			return nil, err
		}
	}
}

// take decodes a line and adds its frame to the batch. An error ends the session.
func (c *client) take(line []byte) *Error {
	f, fault := c.decoder.Decode(line)
	if fault != nil {
		if fault.Code == UnknownOp {
			return nil // probably a frame of a later version: ignore it
		}
		return fault
	}
	switch f := f.(type) {
	case *Ping:
		_ = c.out.put(pong)
		return nil
	case *Pong:
		if len(c.asked) > 0 { // pings are answered in their order
			c.granted(c.asked[0], f.Keep)
			c.asked = c.asked[1:]
		}
		return nil
	case *Welcome:
		return nil
	case *Error:
		if f.Fatal {
			return f
		}
	}
	c.batch = append(c.batch, f)
	return nil
}

// Fits reports whether raw JSON fits into a frame of this session, with room
// for the other fields.
func (c *client) Fits(raw []byte) bool {
	return len(raw)+256 <= c.welcome.Limits.MaxFrame
}

// Flush makes the writer send all queued frames. It waits only while the outbox is more than full.
func (c *client) Flush() { c.out.flush() }

func (c *client) write() {
	defer close(c.written)
	if err := c.out.write(); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.conn.Close() // the dispatcher does not read; the close makes Receive return
	}
	// After any other error the dispatcher is gone. Receive still reads what it sent.
}

// Close writes the queued frames and then closes the connection. Receive returns.
func (c *client) Close() error {
	c.out.close(nil)
	<-c.written
	if err := c.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Abort closes the connection at once, as a crash does. Queued frames are dropped.
func (c *client) Abort() {
	_ = c.conn.Close()
	c.out.discard()
	<-c.written
}
