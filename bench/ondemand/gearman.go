package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd/bench/internal/rig"
)

// gearmanWorker is the hidden argument that makes this program a worker of
// Gearman.
const gearmanWorker = "gearman-worker"

// gearman is a packet connection to gearmand.
type gearman struct {
	conn net.Conn
	in   *bufio.Reader
}

// Packet types of Gearman's protocol.
const (
	gearmanCanDo        = 1
	gearmanPreSleep     = 4
	gearmanNoop         = 6
	gearmanSubmitJob    = 7
	gearmanJobCreated   = 8
	gearmanGrabJob      = 9
	gearmanNoJob        = 10
	gearmanJobAssign    = 11
	gearmanWorkComplete = 13
)

func dialGearman(ctx context.Context, address string) (*gearman, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &gearman{conn, bufio.NewReader(conn)}, nil
}

func (g *gearman) send(packet uint32, args ...[]byte) error {
	data := bytes.Join(args, []byte{0})
	b := append(make([]byte, 0, 12+len(data)), "\x00REQ"...)
	b = binary.BigEndian.AppendUint32(b, packet)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	_, err := g.conn.Write(append(b, data...))
	return err
}

// receive returns the next packet whose type is not among those to skip.
func (g *gearman) receive(skip ...uint32) (packet uint32, data []byte, err error) {
	for {
		var head [12]byte
		if _, err := io.ReadFull(g.in, head[:]); err != nil {
			return 0, nil, err
		}
		packet = binary.BigEndian.Uint32(head[4:])
		data = make([]byte, binary.BigEndian.Uint32(head[8:]))
		if _, err := io.ReadFull(g.in, data); err != nil {
			return 0, nil, err
		}
		if len(skip) == 0 || packet != skip[0] {
			return packet, data, nil
		}
	}
}

// serveGearman is a worker that returns the payload.
func serveGearman(ctx context.Context, address string) error {
	g, err := dialGearman(ctx, address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = g.conn.Close() })
	if err := g.send(gearmanCanDo, []byte(jobType)); err != nil {
		return err
	}
	fmt.Println("ready")
	next := uint32(gearmanGrabJob)
	for {
		if err := g.send(next); err != nil {
			return ignoreEnd(ctx, err)
		}
		packet, data, err := g.receive()
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		next = gearmanGrabJob
		switch packet {
		case gearmanNoJob:
			if err := g.send(gearmanPreSleep); err != nil {
				return ignoreEnd(ctx, err)
			}
			if _, _, err := g.receive(); err != nil { // NOOP announces a job
				return ignoreEnd(ctx, err)
			}
		case gearmanJobAssign:
			parts := bytes.SplitN(data, []byte{0}, 3)
			if len(parts) != 3 {
				return errAnswer
			}
			if err := g.send(gearmanWorkComplete, parts[0], parts[2]); err != nil {
				return ignoreEnd(ctx, err)
			}
		}
	}
}

// ignoreEnd returns nil if the error was caused by the end of the program.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the connection was closed
	}
	return err
}

// openGearman starts gearmand and a worker, and connects to gearmand as a caller.
func openGearman(ctx context.Context) (_ *system, err error) {
	s := &system{name: "gearman"}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	path, err := exec.LookPath("gearmand")
	if err != nil {
		return nil, fmt.Errorf("%w: install the package gearman-job-server", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	server, err := rig.Run("gearmand", nil, path, "--listen=127.0.0.1", "--port="+strconv.Itoa(port), "--threads=4", "--log-file=stderr")
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, server)
	if err := awaitPort(ctx, address); err != nil {
		return nil, err
	}
	if err := s.start(gearmanWorker, address); err != nil {
		return nil, err
	}
	caller, err := dialGearman(ctx, address)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, caller.conn.Close)
	s.ask = func() error {
		if err := caller.send(gearmanSubmitJob, []byte(jobType), nil, payload); err != nil {
			return err
		}
		packet, data, err := caller.receive(gearmanJobCreated)
		if err != nil {
			return err
		}
		if _, result, _ := bytes.Cut(data, []byte{0}); packet != gearmanWorkComplete || !bytes.Equal(result, payload) {
			return errAnswer
		}
		return nil
	}
	return s, nil
}

// freePort returns a TCP port that is probably free.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }() // no connection was accepted
	return l.Addr().(*net.TCPAddr).Port, nil
}

func awaitPort(ctx context.Context, address string) error {
	for range 1000 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("no server listens on %s", address)
}
