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

	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// handshakeTime bounds a TLS handshake.
const handshakeTime = 5 * time.Second

// gate is a listener for TCP. It performs the TLS handshakes, each in a goroutine of its own, so that a slow peer delays no other
// one. While a handshake computes, it uses one of the processors of its address.
type gate struct {
	*httpapi.Relay

	visitors  *visitors
	protocols []string              // that a connection with TLS may negotiate
	failed    func(net.Conn, error) // reports a handshake that failed
}

// gate returns a listener that passes on the connections of l.
func (v *visitors) gate(l net.Listener, failed func(net.Conn, error), protocols ...string) *gate {
	g := &gate{Relay: httpapi.NewRelay(context.Background(), l), visitors: v, protocols: protocols, failed: failed}
	go g.Run(func(conn net.Conn) { go g.receive(v.enter(conn.(*net.TCPConn))) })
	return g
}

// receive performs the handshake of a connection.
func (g *gate) receive(v *visitor) {
	var conn net.Conn = v
	if config := g.visitors.current().tls; config != nil {
		config = config.Clone()
		config.NextProtos = g.protocols
		v.authority = config.ClientCAs
		ctx, cancel := context.WithTimeout(g.Closed, handshakeTime)
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
	if !g.Pass(conn, nil) {
		_ = v.Close()
	}
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
			what = "the peer does not use TLS"
			answerPlain(plain.Conn, plain.RecordHeader[0], what+": connect with ")
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
		_, _ = conn.Write(workerproto.Append(nil, workerproto.Complain(workerproto.Refused, "%stls://", what)))
	case strings.IndexByte("GPHDOC", first) >= 0: // the methods of HTTP
		text := rest.InvalidRequest.Of(what + "https://").Text()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"+
			"Content-Length: %d\r\n\r\n%s", len(text), text)
	}
}
