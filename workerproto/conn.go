package workerproto

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Conn is the worker's end of a session: what an SDK is built on.
type Conn struct {
	conn    net.Conn
	welcome Welcome
	in      lines
	out     *outbox
	decoder DispatcherDecoder
	batch   []DispatcherFrame
	fatal   *Error // the dispatcher's last word, once it was received
	written chan struct{}
}

const (
	clientOutbox  = 4096             // frames that may wait before Send blocks
	clientTimeout = 15 * time.Second // for silence and writes, if the welcome names no other
	welcomeFrame  = 1 << 20          // bytes of a frame before the welcome has named the limit
)

// Dial connects to the dispatcher at path and says hello. An *Error is the
// dispatcher's refusal.
func Dial(ctx context.Context, path string, hello *Hello) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return Connect(ctx, conn, hello)
}

// Connect says hello on a fresh connection and waits for the welcome until ctx
// is done. It owns conn: on an error it is closed. Versions that are zero are
// set to those of this package.
func Connect(ctx context.Context, conn net.Conn, hello *Hello) (*Conn, error) {
	if hello.MaxVersion == 0 {
		hello.MinVersion, hello.MaxVersion = MinVersion, MaxVersion
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c := &Conn{conn: conn, written: make(chan struct{})}
	c.in = lines{conn: conn, max: welcomeFrame}
	err := c.greet(hello)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, ignoreClosed(conn.Close()))
	}
	c.in.max = c.welcome.Limits.MaxFrame
	c.out = newOutbox(conn, clientOutbox, c.welcome.Limits.Timeout, func(int, int) {})
	go c.writer()
	return c, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (c *Conn) greet(hello *Hello) error {
	if err := c.conn.SetDeadline(time.Now().Add(clientTimeout)); err != nil {
		return err
	}
	_, sent := c.conn.Write(Append(nil, hello)) // a refusal may have come before: read it
	for {
		line, ok, fault := c.in.next()
		if fault != nil {
			return fault
		}
		if !ok {
			if err := c.in.read(); err != nil {
				return errors.Join(sent, fmt.Errorf("waiting for the welcome: %w", err))
			}
			continue
		}
		f, fault := c.decoder.Decode(line)
		if fault != nil {
			return fmt.Errorf("waiting for the welcome: %w", fault)
		}
		switch f := f.(type) {
		case *Welcome:
			c.welcome = *f
			c.defaults()
			return c.conn.SetDeadline(time.Time{})
		case *Error:
			return f
		default:
			return fmt.Errorf("waiting for the welcome: the dispatcher sent %T", f)
		}
	}
}

// defaults fills in what a terse dispatcher did not say.
func (c *Conn) defaults() {
	p := &c.welcome.Limits
	if p.MaxFrame <= 0 {
		p.MaxFrame = welcomeFrame
	}
	if p.Timeout <= 0 {
		p.Timeout = clientTimeout
	}
	if p.Heartbeat <= 0 || p.Heartbeat > p.Timeout {
		p.Heartbeat = p.Timeout / 3
	}
}

// Welcome returns what the dispatcher said at the beginning.
func (c *Conn) Welcome() Welcome { return c.welcome }

// Session returns the nonce of the session, which every report carries.
func (c *Conn) Session() string { return c.welcome.Session }

// Receive waits for more frames and returns all that are there: Job, Cancel,
// Stale, GoAway and non-fatal Error; heartbeats are dealt with, unknown frames
// left out. Slice and frames are valid until the next call; strings and byte
// slices in them stay. The end is an error: the dispatcher's last *Error if
// it gave one, io.EOF, or that of the connection. Not for several goroutines.
func (c *Conn) Receive() ([]DispatcherFrame, error) {
	clear(c.batch)
	c.batch = c.batch[:0]
	c.decoder.Reset()
	for {
		if err := c.collect(); err != nil {
			return nil, err
		}
		if len(c.batch) > 0 {
			return c.batch, nil
		}
		if c.fatal != nil {
			return nil, c.fatal
		}
		if err := c.listen(); err != nil {
			return nil, err
		}
	}
}

func (c *Conn) collect() error {
	for c.fatal == nil {
		line, ok, fault := c.in.next()
		if fault != nil {
			return fault
		}
		if !ok {
			return nil
		}
		f, fault := c.decoder.Decode(line)
		if fault != nil {
			if fault.Code == UnknownOp {
				continue // a later version's
			}
			return fault
		}
		switch f := f.(type) {
		case *Ping:
			c.out.put(pong)
		case *Pong, *Welcome:
		case *Error:
			if f.Fatal {
				c.fatal = f
				return nil
			}
			c.batch = append(c.batch, f)
		default:
			c.batch = append(c.batch, f)
		}
	}
	return nil
}

// listen waits for more bytes, with the same heartbeats as the dispatcher.
func (c *Conn) listen() error {
	silent := time.Duration(0)
	for {
		wait := min(c.welcome.Limits.Heartbeat, c.welcome.Limits.Timeout-silent)
		_ = c.conn.SetReadDeadline(time.Now().Add(wait)) // fails on a closed connection only, and then the read does too
		err := c.in.read()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if silent += wait; silent >= c.welcome.Limits.Timeout {
			return Complain(HeartbeatTimeout, 0, "nothing heard for %v", silent)
		}
		c.in.shrink()
		c.out.put(ping)
	}
}

// Send queues a frame, waits while too many wait already, and reports false
// once the connection is gone. The frame must not be touched afterwards. A
// frame about a job that names no session gets this one's. Any goroutine may
// send.
func (c *Conn) Send(f WorkerFrame) bool {
	c.name(f)
	return c.out.wait(f)
}

// Queue is Send for somebody who will soon have more to say: the frame leaves
// with the next Send or Flush, in one write with what was queued meanwhile. It
// never waits; false means that the frame was not queued, because the
// connection is gone or too many frames wait already.
func (c *Conn) Queue(f WorkerFrame) bool {
	c.name(f)
	return c.out.defers(f)
}

// Flush lets the writer send everything that was queued. It does not wait for that.
func (c *Conn) Flush() { c.out.flush() }

func (c *Conn) name(f WorkerFrame) {
	if n, ok := f.(named); ok && n.execution().Session == "" {
		n.execution().Session = c.welcome.Session
	}
}

// Fits reports whether raw JSON fits into a frame of this session, with room
// for the other fields.
func (c *Conn) Fits(raw []byte) bool {
	return len(raw)+256 <= c.welcome.Limits.MaxFrame
}

func (c *Conn) writer() {
	defer close(c.written)
	if err := c.out.write(); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.conn.Close() // nobody reads there: wakes Receive
	}
	// Otherwise the dispatcher is gone; what it said before is still to be read.
}

// Close writes what was sent, then closes the connection. Receive returns.
func (c *Conn) Close() error {
	c.out.close(nil)
	<-c.written
	return ignoreClosed(c.conn.Close())
}

// Abort closes the connection at once, as a crash would.
func (c *Conn) Abort() {
	_ = c.conn.Close()
	c.out.discard()
	<-c.written
}
