//go:build linux

package workerproto

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// Article 1 accepts that a job may reach the wrong worker: two workers crash and
// restart in reverse order. Before the scheduler notices the crashes, the kernel gives
// each worker the descriptor number of the other. These tests create this situation.

// crossing is a dispatcher that has not noticed the crash. It keeps the first
// session of each worker and sends jobs to it.
type crossing struct {
	opened chan *Session
	closed atomic.Int64
	// delays Closed, as a busy scheduler would
	noticed chan bool
}

func (c *crossing) Open(s *Session, _ *Hello) error { c.opened <- s; return nil }

func (c *crossing) Frames(*Session, []WorkerFrame) {}

func (c *crossing) Closed(*Session, error) {
	<-c.noticed
	c.closed.Add(1)
}

// fdOf returns the descriptor number of a session.
func fdOf(t *testing.T, s *Session) (number int) {
	raw, err := s.conn.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	if raw.Control(func(fd uintptr) { number = int(fd) }) != nil {
		return -1
	}
	return number
}

// typedWorker is a worker with one type. It reports each job of another type to the test.
type typedWorker struct {
	conn  *Conn
	done  sync.WaitGroup
	mine  string
	wrong *atomic.Int64
}

// connect sends hello on a connection that was dialled before.
func connect(t *testing.T, raw net.Conn, mine string, wrong *atomic.Int64) *typedWorker {
	conn, err := Connect(context.Background(), raw, &Hello{Worker: mine, Slots: []Slot{{0, []string{mine}}}})
	require.NoError(t, err)
	c := &typedWorker{conn: conn, mine: mine, wrong: wrong}
	c.done.Go(func() {
		for {
			frames, err := conn.Receive()
			if err != nil {
				return
			}
			for _, f := range frames {
				if j, ok := f.(*Job); ok && (j.Type != c.mine || j.Session != conn.Session()) {
					wrong.Add(1)
				}
			}
		}
	})
	return c
}

// hangUp looks like a crash to the dispatcher. The worker keeps its own descriptor,
// so that only the dispatcher's descriptor numbers become free.
func (c *typedWorker) hangUp(t *testing.T) {
	require.NoError(t, c.conn.conn.(*net.UnixConn).CloseWrite())
}

func (c *typedWorker) end() {
	c.conn.Abort()
	c.done.Wait()
}

// gate is a listener that accepts one connection per permit.
type gate struct {
	net.Listener
	permits chan bool
}

func (g *gate) Accept() (net.Conn, error) {
	<-g.permits
	return g.Listener.Accept()
}

func (g *gate) Close() error {
	close(g.permits)
	return g.Listener.Close()
}

func TestJobsReachTheirWorkerDespiteReusedDescriptors(t *testing.T) {
	cycles := 3000
	if testing.Short() {
		cycles = 300
	}
	path := filepath.Join(t.TempDir(), "w.sock")
	l, err := Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	h := &crossing{opened: make(chan *Session, 1), noticed: make(chan bool)}
	g := &gate{l, make(chan bool)}
	startServerOn(t, g, Limits{}, h, nil)
	queued := func() net.Conn { // connected but not accepted
		raw, err := net.Dial("unix", path)
		require.NoError(t, err)
		return raw
	}
	var wrong atomic.Int64
	enter := func(raw net.Conn, mine string) (*typedWorker, *Session) {
		g.permits <- true
		return connect(t, raw, mine, &wrong), <-h.opened
	}
	crossed := 0
	for cycle := range cycles {
		a, sa := enter(queued(), "a")
		b, sb := enter(queued(), "b")
		fdA, fdB := fdOf(t, sa), fdOf(t, sb)
		rawB, rawA := queued(), queued() // in reverse order

		a.hangUp(t)
		h.noticed <- true // the connection is closed, so its descriptor number is free
		b.hangUp(t)
		h.noticed <- true
		b2, sb2 := enter(rawB, "b")
		a2, sa2 := enter(rawA, "a")
		if fdOf(t, sb2) == fdA && fdOf(t, sa2) == fdB {
			crossed++
		}

		// The dispatcher still uses the first sessions.
		job := dispatcherd.JobID(cycle + 1)
		require.False(t, sa.Send(&Job{Execution: Execution{Job: job, Attempt: 1}, Type: "a"}),
			"an ended session accepts no frame, even if its descriptor number is in use again")
		require.False(t, sb.Send(&Job{Execution: Execution{Job: job, Attempt: 1}, Type: "b"}))
		// A frame for the old session must not be accepted in the new session
		// either.
		require.False(t, sa2.Send(&Job{Execution: Execution{Job: job, Attempt: 1, Session: sb.Nonce()}, Type: "b"}))
		require.True(t, sb2.Send(&Job{Execution: Execution{Job: job, Attempt: 1}, Type: "b"}))
		require.True(t, sa2.Send(&Job{Execution: Execution{Job: job, Attempt: 1}, Type: "a"}))
		for _, c := range []*typedWorker{a, b} {
			c.end()
		}
		for _, c := range []*typedWorker{a2, b2} {
			c.hangUp(t)
			h.noticed <- true
			c.end()
		}
	}
	require.Zero(t, wrong.Load())
	require.Greater(t, crossed, cycles/2, "the kernel must have exchanged the descriptor numbers in some cycle")
	t.Logf("%d cycles, descriptors crossed in %d of them, misdelivered: %d", cycles, crossed, wrong.Load())
}

// TestDescriptorNumbersDeliverToTheWrongWorker is the negative control. It sends to
// descriptor numbers instead of connections, as the article does, and jobs reach
// the wrong worker.
func TestDescriptorNumbersDeliverToTheWrongWorker(t *testing.T) {
	const cycles = 100
	path := filepath.Join(t.TempDir(), "raw.sock")
	listener, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(listener)) }()
	require.NoError(t, syscall.Bind(listener, &syscall.SockaddrUnix{Name: path}))
	require.NoError(t, syscall.Listen(listener, 10))
	socket := func() int {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	accept := func(worker int) int {
		require.NoError(t, syscall.Connect(worker, &syscall.SockaddrUnix{Name: path}))
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC)
		require.NoError(t, err)
		return fd
	}
	misdelivered := 0
	for range cycles {
		workerA, workerB, workerA2, workerB2 := socket(), socket(), socket(), socket()
		a, b := accept(workerA), accept(workerB)
		require.NoError(t, syscall.Close(a)) // both workers crash; the table still maps the numbers to a and b
		require.NoError(t, syscall.Close(b))
		b2 := accept(workerB2) // the numbers are assigned in reverse order
		a2 := accept(workerA2)
		if _, err := syscall.Write(a, []byte("job for A")); err == nil { // the write succeeds
			buf := make([]byte, 100)
			n, _, _ := syscall.Recvfrom(workerB2, buf, syscall.MSG_DONTWAIT)
			if n > 0 && string(buf[:n]) == "job for A" {
				misdelivered++
			}
		}
		for _, fd := range []int{workerA, workerB, workerA2, workerB2, a2, b2} {
			require.NoError(t, syscall.Close(fd))
		}
	}
	require.Positive(t, misdelivered, "the negative control must deliver jobs to the wrong worker")
	t.Logf("%d of %d jobs went to the wrong worker", misdelivered, cycles)
}
