//go:build unix

package worker

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// startRemote starts a dispatcher on TCP and returns its address.
func startRemote(t testing.TB, limits workerproto.Limits) (d *dispatcher, address string) {
	d = newDispatcher(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d.serve(l, limits, d)
	return d, "tcp://" + l.Addr().String()
}

// remoteWorker starts a worker with one slot, whose handler waits for finish or for the end of its context.
func remoteWorker(addresses ...string) (w *Worker, started chan bool, finish chan bool, ended chan error) {
	w = New(Options{Dispatcher: strings.Join(addresses, ","), MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	started, finish, ended = make(chan bool, 9), make(chan bool), make(chan error, 9)
	w.Handle("x", func(ctx context.Context, _ *Job) (any, error) {
		started <- true
		select {
		case <-finish:
		case <-ctx.Done():
		}
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	w.Slots(1, "x")
	return w, started, finish, ended
}

// idleWorker returns such a worker for a test that sends it no job.
func idleWorker(addresses ...string) *Worker {
	w, _, _, _ := remoteWorker(addresses...) //nolint:dogsled // the channels of a job that does not come
	return w
}

// proxy passes bytes between a worker and a dispatcher until it swallows them.
type proxy struct {
	swallows atomic.Bool
	address  string
}

func startProxy(t *testing.T, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := &proxy{address: "tcp://" + l.Addr().String()}
	pass := func(from, to net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			if err != nil {
				if !p.swallows.Load() {
					_ = to.Close()
				}
				return
			}
			if !p.swallows.Load() {
				_, _ = to.Write(buf[:n])
			}
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			other, err := net.Dial("tcp", strings.TrimPrefix(target, "tcp://"))
			if err != nil {
				_ = conn.Close()
				continue
			}
			t.Cleanup(func() { _, _ = conn.Close(), other.Close() })
			go pass(conn, other)
			go pass(other, conn)
		}
	}()
	return p
}

// The network swallows everything. The dispatcher waits for RemoteResume before it gives the job to another worker. The worker has
// stopped the execution before, although it cannot know whether the dispatcher lives.
func TestRemoteExecutionEndsBeforeItsJobRunsElsewhere(t *testing.T) {
	const resume = 2 * time.Second
	d, address := startRemote(t, workerproto.Limits{RemoteResume: resume, Resume: time.Hour})
	p := startProxy(t, address)
	w, started, _, ended := remoteWorker(p.address)
	run(t, w)
	s, _ := d.opened()
	require.True(t, s.Remote())
	require.True(t, push(s, 1, 0, "x", `null`))
	<-started
	cut := time.Now()
	p.swallows.Store(true)
	require.ErrorIs(t, <-ended, ErrLost)
	require.Less(t, time.Since(cut), resume)
}

// The dispatcher keeps the connection open and sends frames, but it cannot prove its lease, so it promises no more time.
func TestExecutionEndsWithTheLeaseOfARemoteDispatcher(t *testing.T) {
	var left atomic.Int64
	left.Store(int64(time.Hour))
	trust := func() time.Duration { return time.Duration(left.Load()) }
	d, address := startRemote(t, workerproto.Limits{RemoteResume: time.Second, Trust: trust})
	w, started, _, ended := remoteWorker(address)
	run(t, w)
	s, _ := d.opened()
	require.True(t, push(s, 1, 0, "x", `null`))
	<-started
	select {
	case <-ended:
		require.Fail(t, "the dispatcher has answered each ping")
	case <-time.After(1500 * time.Millisecond):
	}
	left.Store(0)
	require.ErrorIs(t, <-ended, ErrLost)
	require.Error(t, d.ended())
}

func TestWorkerResumesItsExecutionAtTheNextDispatcher(t *testing.T) {
	limits := workerproto.Limits{RemoteResume: 10 * time.Second}
	first, a := startRemote(t, limits)
	second, b := startRemote(t, limits)
	second.resume = true
	w, started, finish, ended := remoteWorker(a, b)
	run(t, w)
	s, hello := first.opened()
	require.True(t, hello.Moves)
	require.True(t, push(s, 1, 0, "x", `null`))
	<-started
	first.shutDown()
	s, hello = second.opened()
	require.Len(t, hello.Running, 1)
	require.EqualValues(t, 1, hello.Running[0].Job)
	finish <- true
	require.NoError(t, <-ended)
	require.EqualValues(t, 1, expect[*workerproto.Done](second).Job)
	_ = s
}

// The worker is told to go away while it serves a request, which no other dispatcher could resume, and runs a job.
func TestWorkerIsSentToAnotherDispatcher(t *testing.T) {
	limits := workerproto.Limits{RemoteResume: 10 * time.Second}
	first, a := startRemote(t, limits)
	second, b := startRemote(t, limits)
	second.resume = true
	w, started, finish, _ := remoteWorker(a, b)
	w.Slots(1, "x")
	run(t, w)
	s, _ := first.opened()
	require.True(t, s.Send(&workerproto.Job{
		Execution: workerproto.Execution{Job: -1, Attempt: 1}, Token: "t", Slot: 0, Type: "x", Mode: dispatcherd.OnDemand,
	}))
	<-started
	require.True(t, s.Send(&workerproto.GoAway{Reason: "an operator drains the dispatcher", Grace: time.Minute}))
	finish <- true
	require.EqualValues(t, -1, expect[*workerproto.Done](first).Job)
	require.Error(t, first.ended())
	_, hello := second.opened()
	require.Empty(t, hello.Running)
	require.Len(t, hello.Slots, 2)
}

// A worker that knows one dispatcher stays, and says goodbye when it has drained.
func TestWorkerWithOneDispatcherStaysAndSaysGoodbye(t *testing.T) {
	d, address := startRemote(t, workerproto.Limits{})
	w := idleWorker(address)
	connected := make(chan bool, 1)
	w.opts.Connected = func(workerproto.Welcome) { connected <- true }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s, hello := d.opened()
	require.False(t, hello.Moves)
	<-connected
	require.True(t, s.Send(&workerproto.GoAway{Grace: time.Millisecond}))
	stop()
	require.NoError(t, <-done)
	expect[*workerproto.Drain](d)
	expect[*workerproto.Goodbye](d)
}

// All of several dispatchers must refuse a worker before it gives up.
func TestWorkerIsRefusedByOneOfTwoDispatchers(t *testing.T) {
	first, a := startRemote(t, workerproto.Limits{})
	second, b := startRemote(t, workerproto.Limits{})
	first.refuse = workerproto.Complain(workerproto.Refused, "unknown token")
	w := idleWorker(a, b)
	run(t, w)
	second.opened()
}
