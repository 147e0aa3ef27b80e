package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// proxyServer is the hidden first argument that makes this program the proxy. The other
// arguments are the round-trip delay, the socket to listen on, and the socket of the server.
const proxyServer = "distance-server"

// proxy puts a round-trip delay between a contestant and Postgres: it forwards every byte after
// a fixed delay.
//
// Each direction adds half of the delay. Bytes that follow each other closely stay
// together, so pipelining works as over a network of unlimited bandwidth. The proxy is a
// separate process, so that its work does not count as work of a contestant. With a delay
// of 0 the proxy still copies every byte, so that the distances are comparable.
type proxy struct {
	process *rig.Process
	dir     string
}

// startProxy starts this program again, as a proxy to the server that dsn names.
func startProxy(dsn string, roundTrip time.Duration) (*proxy, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "distance-")
	if err != nil {
		return nil, err
	}
	p := &proxy{dir: dir}
	name := ".s.PGSQL." + u.Query().Get("port")
	p.process, err = rig.RunSelf("distance", proxyServer, roundTrip.String(),
		filepath.Join(dir, name), filepath.Join(u.Query().Get("host"), name))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if _, err := p.process.Expect("ready"); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// through returns a connection string that leads through the proxy to the database of
// dsn.
func (p *proxy) through(dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	q := u.Query()
	q.Set("host", p.dir)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// close ends the proxy.
func (p *proxy) close() error { return errors.Join(p.process.Stop(), os.RemoveAll(p.dir)) }

// serveProxy runs the proxy until ctx ends.
func serveProxy(ctx context.Context, roundTrip, listen, server string) error {
	delay, err := time.ParseDuration(roundTrip)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", listen)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	fmt.Println("ready")
	for {
		client, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the listener was closed
			}
			return err
		}
		target, err := net.Dial("unix", server)
		if err != nil {
			return errors.Join(err, client.Close())
		}
		go pipe(target, client, delay/2)
		go pipe(client, target, delay/2)
	}
}

// chunk contains bytes that were read at once, and the time at which they are
// written.
type chunk struct {
	at   time.Time
	data []byte
}

// inFlight bounds the chunks on the way in one direction. With 64 kB and 2.5 ms
// each direction can carry more than any contestant sends.
const inFlight = 1024

// pipe copies from src to dst until one of them ends. Each chunk is delayed.
func pipe(dst io.WriteCloser, src io.ReadCloser, delay time.Duration) {
	if delay == 0 {
		_, _ = io.Copy(dst, src) // either side may close the connection
		_, _ = dst.Close(), src.Close()
		return
	}
	way := make(chan chunk, inFlight)
	go func() {
		// The runtime's timers are exact only to a millisecond.
		runtime.LockOSThread()
		for c := range way {
			for wait := time.Until(c.at); wait > 0; wait = time.Until(c.at) {
				pause := syscall.NsecToTimespec(wait.Nanoseconds())
				_ = syscall.Nanosleep(&pause, nil) // an interrupted sleep is continued
			}
			if _, err := dst.Write(c.data); err != nil {
				_ = src.Close()
				for range way { // the reader ends because its source is closed
				}
				break
			}
		}
		_ = dst.Close()
	}()
	defer close(way)
	for {
		buf := make([]byte, 64<<10)
		n, err := src.Read(buf)
		if n > 0 {
			way <- chunk{time.Now().Add(delay), buf[:n:n]}
		}
		if err != nil {
			return
		}
	}
}
