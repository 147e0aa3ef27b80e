package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// handshakeTime bounds a TLS handshake.
const handshakeTime = 5 * time.Second

// gate is a listener for TCP. It performs the TLS handshakes, each in a goroutine of its own, so that a slow peer delays no other
// one. While a handshake computes, it uses one of the processors of its address.
type gate struct {
	net.Listener

	visitors  *visitors
	protocols []string              // that a connection with TLS may negotiate
	failed    func(net.Conn, error) // reports a handshake that failed
	incoming  chan accepted
	closed    context.Context
	close     context.CancelFunc
}

// accepted is a connection, or the error of the listener.
type accepted struct {
	conn net.Conn
	err  error
}

// gate returns a listener that passes on the connections of l.
func (v *visitors) gate(l net.Listener, failed func(net.Conn, error), protocols ...string) *gate {
	g := &gate{Listener: l, visitors: v, protocols: protocols, failed: failed, incoming: make(chan accepted)}
	g.closed, g.close = context.WithCancel(context.Background())
	go g.run()
	return g
}

// run takes connections until the listener is closed. After an error of the listener it waits until the caller of Accept has it, and
// that caller pauses.
func (g *gate) run() {
	for {
		conn, err := g.Listener.Accept()
		if err == nil {
			go g.receive(g.visitors.enter(conn.(*net.TCPConn)))
			continue
		}
		if !g.pass(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// receive performs the handshake of a connection.
func (g *gate) receive(v *visitor) {
	var conn net.Conn = v
	if config := g.visitors.current().tls; config != nil {
		config = config.Clone()
		config.NextProtos = g.protocols
		ctx, cancel := context.WithTimeout(g.closed, handshakeTime)
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (_ *tls.Config, err error) { // the first message has arrived
			v.leave, err = quota.Processors.Enter(ctx, "network "+v.prefix.String())
			return nil, err
		}
		secure := tls.Server(v, config)
		err := secure.HandshakeContext(ctx)
		cancel()
		v.rest()
		if err != nil {
			g.failed(v, err)
			_ = v.Close()
			return
		}
		conn = secure
	}
	if !g.pass(accepted{conn: conn}) {
		_ = v.Close()
	}
}

// pass passes a connection or an error to Accept. It returns false if the gate is closed.
func (g *gate) pass(a accepted) bool {
	select {
	case g.incoming <- a:
		return true
	case <-g.closed.Done():
		return false
	}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case a := <-g.incoming:
		return a.conn, a.err
	case <-g.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (g *gate) Close() error {
	g.close()
	return g.Listener.Close()
}

// handshakeFailed reports a TLS handshake that failed. A peer that does not use TLS is told so in its own protocol. A probe that only
// connects, or a peer that breaks off, is not logged.
func (d *Daemon) handshakeFailed(listener string) func(net.Conn, error) {
	lines := newLimitedLog(d.log, sessionLines, "a TLS handshake failed")
	return func(conn net.Conn, err error) {
		d.metrics.visitors.WithLabelValues("handshake").Inc()
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return
		}
		what := err.Error()
		if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil {
			what = "the peer does not use TLS: connect with tls:// or https://"
			answerPlain(plain.Conn, plain.RecordHeader[0], what)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			what = fmt.Sprintf("the handshake took longer than %v", handshakeTime)
		}
		lines.write(zap.WarnLevel, zap.String("listener", listener), zap.Stringer("peer", conn.RemoteAddr()), zap.String("reason", what))
	}
}

// answerPlain answers a peer that does not use TLS, in the protocol that its first byte shows.
func answerPlain(conn net.Conn, first byte, what string) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // fails only on a closed connection
	switch {
	case first == '{':
		_, _ = conn.Write(workerproto.Append(nil, workerproto.Complain(workerproto.Refused, "%s", what)))
	case strings.IndexByte("GPHDOC", first) >= 0: // the methods of HTTP
		text := rest.InvalidRequest.Of(what).Text()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"+
			"Content-Length: %d\r\n\r\n%s", len(text), text)
	}
}
