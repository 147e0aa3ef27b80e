package e2e

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// link passes TCP connections on. While it is held, bytes and the ends of connections wait, as over a cable that is unplugged.
type link struct {
	net.Listener

	mu   sync.Mutex
	open chan struct{} // closed while the link is not held
}

// linkTo starts a link to an address.
func linkTo(t *testing.T, address string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{Listener: listener, open: make(chan struct{})}
	l.release()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", address)
			if err != nil {
				_ = near.Close()
				continue
			}
			go l.pass(near, far)
			go l.pass(far, near)
		}
	}()
	return l
}

func (l *link) pass(from, to net.Conn) {
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		<-l.passable()
		if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

func (l *link) passable() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

func (l *link) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *link) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.open)
}

// The network between a worker and its dispatcher is lost while the worker runs a job, and neither side learns of it. The worker stops the
// job before the dispatcher lets another worker run it.
func TestPartitionedWorkerStopsBeforeItsJobRunsElsewhere(t *testing.T) {
	w := newWorld(t)
	s := w.secure(func(_ *secured, cfg *daemon.Config) {
		cfg.Workers.RemoteResume, cfg.Core.RemoteResume = time.Second, time.Second
		cfg.Workers.HeartbeatInterval, cfg.Workers.HeartbeatTimeout = 200*time.Millisecond, 600*time.Millisecond
	})
	cable := linkTo(t, s.workers)
	started, stopped := make(chan *worker.Job, 9), make(chan error, 9)
	s.runWorker(cable.Addr().String(), func(ctx context.Context, job *worker.Job) (any, error) {
		started <- job
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	id := w.insert("x", work{})
	require.Equal(t, dispatcherd.Attempt(1), receive(t, started, "the first attempt").Attempt)

	cable.hold()
	s.runWorker(s.workers, func(context.Context, *worker.Job) (any, error) {
		select {
		case <-stopped:
		default:
			t.Error("the job runs on two workers at once")
		}
		return nil, nil
	})
	w.await(id, dispatcherd.Done)
	cable.release()
}

// runWorker runs a worker with one slot for type x over TLS until the test ends.
func (s *secured) runWorker(address string, handle worker.Handler) {
	s.w.t.Helper()
	connected := make(chan string, 99)
	k := worker.New(worker.Options{
		Dispatcher: "tls://" + address, Credentials: s.proofs("worker"), Grace: time.Millisecond, Disconnected: func(error) {},
		Connected: func(welcome workerproto.Welcome) { connected <- welcome.Dispatcher },
	})
	k.Handle("x", handle)
	k.Slots(1, "x")
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	s.w.t.Cleanup(func() {
		stop()
		require.NoError(s.w.t, receive(s.w.t, done, "the end of the worker"))
	})
	require.Equal(s.w.t, "d", receive(s.w.t, connected, "the connection"))
}
