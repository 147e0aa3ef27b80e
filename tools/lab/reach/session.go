package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// target is a daemon to which this process connects as a worker, with frames that are written by hand.
type target struct {
	*stage.Daemon

	tls    *tls.Config // nil = over its Unix socket
	tokens []string
}

// newTarget returns the only daemon of a stage.
func newTarget(st *stage.Stage, remote bool) (*target, error) {
	t := &target{Daemon: st.Daemons[0]}
	if !remote {
		return t, nil
	}
	c, err := st.Credentials()
	if err != nil {
		return nil, err
	}
	for _, file := range c.Token {
		token, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		t.tokens = append(t.tokens, strings.TrimSpace(string(token)))
	}
	t.tls, err = trust(c)
	return t, err
}

// trust returns the settings of a worker that trusts the daemons.
func trust(c *rig.Credentials) (*tls.Config, error) {
	authority, err := os.ReadFile(c.Cert)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", NextProtos: []string{"dispatcherd-worker"}}, nil
}

// session is the connection of a worker with one slot, for a type of which there are no jobs.
type session struct{ net.Conn }

// open opens the i-th session.
func (t *target) open(ctx context.Context, i int) (*session, error) {
	var (
		conn  net.Conn
		token string
		err   error
	)
	if t.tls == nil {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", t.Socket)
	} else {
		token = fmt.Sprintf(`,"token":%q`, t.tokens[i%len(t.tokens)])
		conn, err = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: t.tls}).DialContext(ctx, "tcp", "127.0.0.1:"+t.Port)
	}
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, `{"op":"hello","versions":[1,1],"worker":"s%d","slots":[{"slot":0,"types":["idle"]}]%s}`+"\n", i, token)
	return &session{conn}, err
}

var errFrame = errors.New("unexpected frame")

// serve answers the pings of the dispatcher until the connection ends. welcomed is called for the welcome.
func (s *session) serve(welcomed func()) error {
	frames := bufio.NewReaderSize(s, 512) // the welcome is shorter
	for {
		frame, err := frames.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		case bytes.Contains(frame, []byte(`"op":"welcome"`)):
			welcomed()
		case bytes.Contains(frame, []byte(`"op":"ping"`)):
			if _, err := s.Write([]byte(`{"op":"pong"}` + "\n")); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: %s", errFrame, frame)
		}
	}
}
