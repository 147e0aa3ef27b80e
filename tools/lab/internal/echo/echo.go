// Package echo runs a process that sends back what it reads. A round trip to this
// process is the lower bound for a request between two processes on one machine.
package echo

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

const (
	// Server is the hidden first argument that makes a program the echo process.
	// The second argument is the socket. The program must then call Serve.
	Server = "echo-server"
	// Size is about the length in bytes of a request, its job frame, or an answer.
	Size = 256
)

// Echo is a connection to an echo process. Only one goroutine may use it.
type Echo struct {
	conn   net.Conn
	server *rig.Process
	dir    string
	buf    []byte
}

// Start starts this program again, as the echo process, and connects to it.
func Start(ctx context.Context) (*Echo, error) {
	dir, err := os.MkdirTemp("", "echo-")
	if err != nil {
		return nil, err
	}
	e := &Echo{dir: dir, buf: make([]byte, Size)}
	path := filepath.Join(dir, "echo.sock")
	if e.server, err = rig.RunSelf("echo", Server, path); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if _, err = e.server.Expect("ready"); err == nil {
		e.conn, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	if err != nil {
		return nil, errors.Join(err, e.server.Stop(), os.RemoveAll(dir))
	}
	return e, nil
}

// Trips makes n round trips, one after the other, and returns their total time.
func (e *Echo) Trips(n int) (time.Duration, error) {
	began := time.Now()
	for range n {
		if _, err := e.conn.Write(e.buf); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(e.conn, e.buf); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// Close ends the process.
func (e *Echo) Close() error {
	return errors.Join(e.conn.Close(), e.server.Wait(), os.RemoveAll(e.dir))
}

// Serve answers one connection on the socket until it ends.
func Serve(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		return err
	}
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	buf := make([]byte, Size)
	for {
		if _, err := io.ReadFull(conn, buf); err != nil {
			return l.Close()
		}
		if _, err := conn.Write(buf); err != nil {
			return err
		}
	}
}
