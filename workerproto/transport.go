package workerproto

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// transport is one end of a connection: it reads lines, queues frames for the
// writer goroutine, and sends heartbeats. Both ends are built on it.
type transport struct {
	conn      net.Conn
	in        lines
	out       *outbox
	heartbeat time.Duration // silence of the peer after which a ping is sent
	timeout   time.Duration // silence of the peer after which it counts as dead

	mu      sync.Mutex
	lingers time.Time // reading ends at this time; zero: no limit
}

// The heartbeats have no content and are shared by all connections.
var (
	ping = &Ping{}
	pong = &Pong{}
)

// read waits for more bytes. It sends a ping when the peer has been silent for
// heartbeat, and returns HeartbeatTimeout when it has been silent for timeout.
// A stopped process keeps its connection open, so only silence reveals it.
// shrink is called before a ping.
//
// Time during which this process was stopped does not count as silence of the
// peer: what the peer sent meanwhile has yet to be read.
func (t *transport) read(shrink func()) error {
	heard := time.Now()
	for now, pinged := heard, heard; ; {
		until := pinged.Add(t.heartbeat)
		if end := heard.Add(t.timeout); until.After(end) {
			until = end
		}
		if !t.setReadDeadline(now, until) {
			return os.ErrDeadlineExceeded
		}
		err := t.in.read()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		now = time.Now()
		heard = heard.Add(max(now.Sub(until), 0))
		if silent := now.Sub(heard); silent >= t.timeout {
			return Complain(HeartbeatTimeout, 0, "nothing heard for %v", silent)
		}
		pinged = now
		t.in.shrink()
		shrink()
		t.out.put(ping, true) // a full outbox is the writer's problem
	}
}

// setReadDeadline limits the next read. It reports false if the connection
// lingers and its time is over.
func (t *transport) setReadDeadline(now, until time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.lingers.IsZero() && until.After(t.lingers) {
		until = t.lingers
	}
	_ = t.conn.SetReadDeadline(until) // fails only on a closed connection, and then the read fails too
	return until.After(now)
}

// closeWrite ends the outgoing half of the connection and limits reading to d.
// It reports false if the connection has no halves, or is closed already.
func (t *transport) closeWrite(d time.Duration) bool {
	half, ok := t.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lingers = time.Now().Add(d)
	return t.conn.SetReadDeadline(t.lingers) == nil
}
