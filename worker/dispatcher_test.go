//go:build unix

package worker

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// patience limits each wait for an expected event.
const patience = 30 * time.Second

// event is a call of the Handler.
type event struct {
	s     *workerproto.Session
	frame workerproto.WorkerFrame // a copy
	hello *workerproto.Hello
	end   error
}

// dispatcher is a protocol server. The test takes the place of the core.
type dispatcher struct {
	t      testing.TB
	path   string
	events chan event
	resume bool               // whether all offers are resumed
	before func()             // called before offers are resumed
	refuse *workerproto.Error // if not nil, the error that answers the next hello

	mu   sync.Mutex
	stop func()
}

func newDispatcher(t testing.TB) *dispatcher {
	d := &dispatcher{t: t, path: filepath.Join(t.TempDir(), "w.sock"), events: make(chan event, 10000)}
	t.Cleanup(d.shutDown)
	return d
}

func startDispatcher(t testing.TB, limits workerproto.Limits) *dispatcher {
	d := newDispatcher(t)
	d.start(limits)
	return d
}

func (d *dispatcher) start(limits workerproto.Limits) {
	d.t.Helper()
	l, err := workerproto.Access{Mode: 0o600}.Listen(d.path)
	require.NoError(d.t, err)
	d.serve(l, limits, d)
}

func (d *dispatcher) serve(l net.Listener, limits workerproto.Limits, h workerproto.Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- workerproto.Serve(ctx, l, limits, h, nil) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop = func() {
		cancel()
		require.NoError(d.t, <-done)
	}
}

// shutDown ends all sessions and frees the socket.
func (d *dispatcher) shutDown() {
	d.mu.Lock()
	stop := d.stop
	d.stop = nil
	d.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (d *dispatcher) Open(s *workerproto.Session, h *workerproto.Hello) error {
	if len(h.Running) > 0 && d.before != nil {
		d.before()
	}
	if err := d.refuse; err != nil {
		d.refuse = nil
		return err
	}
	if d.resume {
		for _, r := range h.Running {
			s.Resume(r.Job, r.Attempt)
		}
	}
	d.events <- event{s: s, hello: h}
	return nil
}

func (d *dispatcher) Frames(s *workerproto.Session, frames []workerproto.WorkerFrame) {
	for _, f := range frames {
		d.events <- event{s: s, frame: copyOf(d.t, f)}
	}
}

func (d *dispatcher) Closed(s *workerproto.Session, cause error) {
	d.events <- event{s: s, end: cause}
}

// copyOf returns a copy that stays valid after the batch.
func copyOf(t testing.TB, f workerproto.WorkerFrame) workerproto.WorkerFrame {
	c, err := workerproto.NewWorkerDecoder().Decode(workerproto.Append(nil, f))
	require.Nil(t, err)
	return c
}

func (d *dispatcher) next() event {
	d.t.Helper()
	select {
	case e := <-d.events:
		return e
	case <-time.After(patience):
		require.FailNow(d.t, "no event from the worker")
		panic("unreachable")
	}
}

// opened waits for a hello.
func (d *dispatcher) opened() (*workerproto.Session, *workerproto.Hello) {
	d.t.Helper()
	e := d.next()
	require.NotNil(d.t, e.hello, "%+v", e)
	return e.s, e.hello
}

// ended waits for the end of a session.
func (d *dispatcher) ended() error {
	d.t.Helper()
	e := d.next()
	require.Error(d.t, e.end, "%T", e.frame)
	return e.end
}

// expect takes the next event, which must be a frame of type F.
func expect[F workerproto.WorkerFrame](d *dispatcher) F {
	d.t.Helper()
	e := d.next()
	f, ok := e.frame.(F)
	require.True(d.t, ok, "%T %+v", e.frame, e)
	return f
}

// push sends a queued job.
func push(s *workerproto.Session, id dispatcherd.JobID, slot int32, jobType, payload string) bool {
	return pushMode(s, id, dispatcherd.Queued, slot, jobType, payload)
}

func pushMode(s *workerproto.Session, id dispatcherd.JobID, mode dispatcherd.Mode, slot int32, jobType, payload string) bool {
	return s.Send(&workerproto.Job{
		Execution: workerproto.Execution{Job: id, Attempt: 1}, Mode: mode, Slot: slot, Type: jobType, Payload: []byte(payload),
	})
}

// running is a worker whose Run was called. Its result is checked when the test
// ends.
type running struct {
	t    testing.TB
	stop context.CancelFunc
	done chan error
}

func run(t testing.TB, w *Worker) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if r.done != nil {
			require.NoError(t, r.wait())
		}
	})
	return r
}

func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.done = nil
		return err
	case <-time.After(patience):
		require.FailNow(r.t, "the worker did not end")
		return nil
	}
}
