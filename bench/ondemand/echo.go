package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/dispatcherd/dispatcherd/bench/internal/rig"
)

// echoServer is the hidden argument that makes this program the other end.
const echoServer = "echo-server"

// echoSize is about what a request, its job frame, and their answers take.
const echoSize = 256 // bytes

// echo is a connection to a process that sends back what it reads.
type echo struct {
	conn   net.Conn
	server *rig.Process
	dir    string
	buf    []byte
}

func startEcho(ctx context.Context) (*echo, error) {
	dir, err := os.MkdirTemp("", "echo-")
	if err != nil {
		return nil, err
	}
	e := &echo{dir: dir, buf: make([]byte, echoSize)}
	path := filepath.Join(dir, "echo.sock")
	if e.server, err = again("echo", echoServer, path); err != nil {
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

// again runs this program as something else.
func again(name string, args ...string) (*rig.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return rig.Run(name, nil, self, args...)
}

// twice is two round trips.
func (e *echo) twice() (time.Duration, error) {
	began := time.Now()
	for range 2 {
		if _, err := e.conn.Write(e.buf); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(e.conn, e.buf); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

func (e *echo) close() error {
	return errors.Join(e.conn.Close(), e.server.Wait(), os.RemoveAll(e.dir))
}

// serveEcho answers one connection until it ends.
func serveEcho(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	os.Stdout.WriteString("ready\n")
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	buf := make([]byte, echoSize)
	for {
		if _, err := io.ReadFull(conn, buf); err != nil {
			return l.Close()
		}
		if _, err := conn.Write(buf); err != nil {
			return err
		}
	}
}
