package workerproto

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Conn is the worker's end of a session. SDKs such as package worker use it.
//
// Receive returns Job, Cancel, Stale, Spawned, GoAway and non-fatal Error frames.
type Conn struct {
	client
}

// maxPath is the longest path of a Unix socket: 107 bytes on Linux, 103 on macOS.
const maxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// ErrSocketPath says that no socket can have the path.
var ErrSocketPath = errors.New("impossible socket path")

// CheckSocketPath returns ErrSocketPath for a path that is empty or too long.
func CheckSocketPath(path string) error {
	if n := len(path); n == 0 || n > maxPath {
		return fmt.Errorf("%w %q: it has %d bytes, choose one of 1 to %d bytes", ErrSocketPath, path, n, maxPath)
	}
	return nil
}

// Connect sends hello on a fresh connection. It waits for the welcome, at most until
// ctx is done. Connect owns conn and closes it if it returns an error. If
// hello.MaxVersion is zero, Connect sets both versions to those of this package.
func Connect(ctx context.Context, conn net.Conn, hello *Hello) (*Conn, error) {
	if hello.MaxVersion == 0 {
		hello.MinVersion, hello.MaxVersion = MinVersion, MaxVersion
	}
	c := &Conn{}
	c.asks = remote(conn)
	c.decoder = NewDispatcherDecoder(false)
	if err := c.start(ctx, conn, hello); err != nil {
		return nil, err
	}
	return c, nil
}

// Remote reports whether the end of the connection does not prove the end of the dispatcher.
func (c *Conn) Remote() bool { return c.asks }

// Keep returns how long executions of this session may continue if the connection ends now. Over a network
// the time runs all along: the dispatcher extends it when it answers a ping. The worker must have ended its
// executions when it is over, even while the connection seems to be open. It is measured with the monotonic clock.
func (c *Conn) Keep() time.Duration {
	if !c.asks {
		return c.welcome.Limits.Resume
	}
	return time.Until(*c.until.Load())
}

// Send queues a frame and waits while the outbox is full. It returns false if the
// connection is gone. The frame must not be changed afterwards. A frame about a job that
// names no session is sent with that of this connection. Any goroutine may call Send.
func (c *Conn) Send(f WorkerFrame) bool { return c.out.putWait(f) }

// Queue queues a frame without waking the writer, for a caller that will soon send more
// frames. The next Send or Flush sends all queued frames together. Queue never waits, also
// if the outbox is full: a caller that queues many frames must call Flush, which waits.
func (c *Conn) Queue(f WorkerFrame) { c.out.add(f) }
