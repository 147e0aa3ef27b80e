package workerproto

import (
	"context"
	"net"
)

// CallerConn is the caller's end of a session.
//
// Receive returns Queued, Started, RequestProgress, RequestPartial, Gap, Answer and
// non-fatal Error frames.
type CallerConn struct {
	client
}

// ConnectCaller sends a hello on a fresh connection. It waits for the welcome, at most
// until ctx is done. ConnectCaller owns conn and closes it if it returns an error.
// caller is a name of the program, for people. token proves who the caller is, over TCP.
func ConnectCaller(ctx context.Context, conn net.Conn, caller, token string) (*CallerConn, error) {
	c := &CallerConn{}
	c.decoder = NewDispatcherDecoder(true)
	hello := &CallerHello{MinVersion: MinVersion, MaxVersion: MaxVersion, Caller: caller, Token: token}
	if err := c.start(ctx, conn, hello); err != nil {
		return nil, err
	}
	return c, nil
}

// Send queues a frame and waits while the outbox is full. It returns false if the
// connection is gone. The frame must not be changed afterwards. Any goroutine may
// call Send.
func (c *CallerConn) Send(f CallerFrame) bool { return c.out.putWait(f) }
