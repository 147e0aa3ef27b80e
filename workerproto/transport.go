package workerproto

import (
	"errors"
	"net"
	"os"
	"time"
)

// transport is one end of a connection. It reads lines, queues frames for the writer
// goroutine, and sends heartbeats. client and serverConn embed it.
type transport struct {
	conn      net.Conn
	in        lines
	out       *outbox
	heartbeat time.Duration // silence of the peer after which a ping is sent
	timeout   time.Duration // silence after which the peer counts as dead

	// A remote worker also sends pings while frames arrive, because their answers say how long its
	// executions may continue.
	asks   bool
	asked  []time.Time // when the pings without an answer were sent
	pinged time.Time
}

// remote reports whether a connection may end although both peers live, and may stay open although one is
// gone. This is the case for all connections over a network. The end of a Unix connection proves that the peer has closed it.
func remote(conn net.Conn) bool {
	_, network := conn.RemoteAddr().(*net.TCPAddr)
	return network
}

// All connections share these frames, because they have no content.
var (
	ping = &Ping{}
	pong = &Pong{}
)

// read waits for more bytes. When the peer has been silent for heartbeat, read frees the
// buffer and sends a ping. When the peer has been silent for timeout, read returns
// HeartbeatTimeout. A stopped process keeps its connection open, so only its silence
// reveals it.
//
// Time during which this process was stopped does not count as silence of the peer,
// because the bytes that the peer sent meanwhile are not yet read.
func (t *transport) read() error {
	heard := time.Now()
	if !t.asks {
		t.pinged = heard
	}
	for {
		until := t.pinged.Add(t.heartbeat)
		if until.Before(heard) {
			until = heard
		}
		if end := heard.Add(t.timeout); until.After(end) {
			until = end
		}
		_ = t.conn.SetReadDeadline(until) // fails only on a closed connection, and then the read fails too
		err := t.in.read()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		now := time.Now()
		heard = heard.Add(max(now.Sub(until), 0))
		if silent := now.Sub(heard); silent >= t.timeout {
			return Complain(HeartbeatTimeout, "nothing heard for %v", silent)
		}
		if t.pinged = now; t.asks {
			t.asked = append(t.asked, now)
		}
		t.in.shrink()
		_ = t.out.put(ping) // a full outbox needs no ping: the peer gets other frames, or a write times out
	}
}
