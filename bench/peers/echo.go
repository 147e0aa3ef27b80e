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
	"github.com/dispatcherd/dispatcherd/bench/internal/stats"
)

// echoServer is the hidden argument that makes this program the other end.
const echoServer = "echo-server"

const (
	echoSize  = 256 // bytes
	echoTrips = 20_000
)

// measureEcho returns the p50 of a round trip between two processes over a
// Unix socket, in microseconds: what any hand-over to a worker costs at least.
func measureEcho(ctx context.Context) (float64, error) {
	dir, err := os.MkdirTemp("", "echo-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "echo.sock")
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	server, err := rig.Run("echo", nil, self, echoServer, path)
	if err != nil {
		return 0, err
	}
	if _, err := server.Expect("ready"); err != nil {
		return 0, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return 0, errors.Join(err, server.Stop())
	}
	trips, err := roundTrips(conn)
	return stats.Quantile(trips, 0.5), errors.Join(err, conn.Close(), server.Wait())
}

func roundTrips(conn net.Conn) ([]float64, error) {
	buf := make([]byte, echoSize)
	trips := make([]float64, 0, echoTrips)
	for range echoTrips {
		began := time.Now()
		if _, err := conn.Write(buf); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			return nil, err
		}
		trips = append(trips, float64(time.Since(began).Nanoseconds())/1000)
	}
	return trips, nil
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
