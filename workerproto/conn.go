package workerproto

import (
	"context"
	"net"
)

// Conn is the worker's end of a session. SDKs are built on it.
//
// Receive returns Job, Cancel, Stale, GoAway and non-fatal Error frames.
type Conn struct {
	client
}

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
	c := &Conn{}
	if err := c.start(ctx, conn, hello); err != nil {
		return nil, err
	}
	return c, nil
}

// Send queues a frame and waits while the outbox is full. It returns false if the
// connection is gone. The frame must not be changed afterwards. If a frame about a
// job names no session, it gets the session of this connection. Any goroutine may
// call Send.
func (c *Conn) Send(f WorkerFrame) bool {
	c.setSession(f)
	return c.out.putWait(f)
}

// Queue is like Send, for a caller that will soon send more. The frame is sent with
// the next Send or Flush, in one write with the frames queued meanwhile. Queue
// never waits. It returns false if the frame was not queued, because the connection
// is gone or the outbox is full.
func (c *Conn) Queue(f WorkerFrame) bool {
	c.setSession(f)
	return c.out.put(f, false) == putOK
}

func (c *Conn) setSession(f WorkerFrame) {
	if n, ok := f.(named); ok && n.execution().Session == "" {
		n.execution().Session = c.welcome.Session
	}
}
