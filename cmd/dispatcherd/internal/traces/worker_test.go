package traces

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// scriptedDispatcher is the dispatcher's end of the socket. The test acts as the core.
type scriptedDispatcher struct {
	t      *testing.T
	path   string
	frames chan frameOf
	closed chan error
}

type frameOf struct {
	session *workerproto.Session
	text    string
	frame   workerproto.WorkerFrame
}

func startScripted(t *testing.T) *scriptedDispatcher {
	t.Helper()
	d := &scriptedDispatcher{t: t, path: filepath.Join(t.TempDir(), "w.sock"), frames: make(chan frameOf, 100), closed: make(chan error, 100)}
	l, err := workerproto.Access{Mode: 0o600}.Listen(d.path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- workerproto.Serve(ctx, l, workerproto.Limits{}, d, nil) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	return d
}

func (d *scriptedDispatcher) Open(*workerproto.Session, *workerproto.Hello) error { return nil }

func (d *scriptedDispatcher) Frames(s *workerproto.Session, frames []workerproto.WorkerFrame) {
	for _, f := range frames {
		text := workerproto.Append(nil, f)
		own, err := workerproto.NewWorkerDecoder().Decode(text)
		if err != nil {
			d.t.Errorf("frame %s: %v", text, err)
		}
		d.frames <- frameOf{s, strings.TrimSpace(string(text)), own}
	}
}

func (d *scriptedDispatcher) Closed(_ *workerproto.Session, cause error) { d.closed <- cause }

// next returns the next frame of the worker.
func (d *scriptedDispatcher) next() frameOf {
	d.t.Helper()
	return receive(d.t, d.frames, "the worker sends a frame")
}

// longWait bounds every wait for something that must happen.
const longWait = 30 * time.Second

func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(longWait):
		require.FailNow(t, "timeout while waiting that "+what)
		panic("unreachable")
	}
}

// onlySocket is the host of a replay that only starts workers.
type onlySocket struct {
	replayHost

	path string
}

func (o onlySocket) Socket() string { return o.path }

// startTraced starts a worker whose slots follow its plan from now on.
func startTraced(t *testing.T, d *scriptedDispatcher, plan workerPlan) (*tracedWorker, *replay) {
	t.Helper()
	r := &replay{host: onlySocket{path: d.path}, moved: make(chan struct{}, 1), begin: time.Now()}
	w := r.startWorker(t.Context(), plan)
	require.NoError(t, w.ready(t.Context()))
	for _, s := range plan.Slots {
		go w.offer(t.Context(), &tracedSlot{plan: s})
	}
	return w, r
}

// Slot 7 goes offline while its job runs, and goes online again before the job
// has ended. The slot is offered again only when the job has ended.
func TestBusyTracedSlotReturnsAfterItsJobHasEnded(t *testing.T) {
	d := startScripted(t)
	w, r := startTraced(t, d, workerPlan{Worker: "team-1", Slots: []slotPlan{
		{Slot: 7, Types: []string{"pdf"}, Sessions: []sessionPlan{{From: 0, Until: 3 * time.Second}, {From: 3001 * time.Millisecond}}},
	}})
	added := d.next()
	require.JSONEq(t, `{"op":"slot_add","slots":[{"slot":0,"types":["pdf"]}]}`, added.text)
	const work = 3200 * time.Millisecond // the job starts before the slot goes offline and ends after the next session begins
	require.True(t, added.session.Send(&workerproto.Job{
		Execution: workerproto.Execution{Job: 99, Attempt: 1}, Slot: 0, Type: "pdf", Mode: dispatcherd.Queued,
		Payload: fmt.Appendf(nil, `{"trace_job":5,"ms":%d}`, work.Milliseconds()),
	}))
	require.JSONEq(t, `{"op":"slot_remove","slots":[0]}`, d.next().text)

	receive(t, r.moved, "the worker reports the execution")
	run := r.runs[0]
	require.EqualValues(t, 5, run.Job)
	require.EqualValues(t, 7, run.Slot)
	require.GreaterOrEqual(t, run.End-run.Start, work)

	var done *workerproto.Done
	back := false
	for range 2 { // in either order
		switch f := d.next().frame.(type) {
		case *workerproto.Done:
			done = f
		case *workerproto.SlotAdd:
			require.EqualValues(t, 1, f.Slots[0].Number)
			back = true
		}
	}
	require.EqualValues(t, 99, done.Job)
	require.True(t, back)

	w.cancel()
	require.JSONEq(t, `{"op":"drain"}`, d.next().text)
	require.NoError(t, w.stop())
	require.ErrorIs(t, receive(t, d.closed, "the session ends"), io.EOF)
}

func TestTraceWorkerRefusesUnknownPayload(t *testing.T) {
	d := startScripted(t)
	w, _ := startTraced(t, d, workerPlan{Worker: "w", Slots: []slotPlan{
		{Slot: 1, Types: []string{"pdf"}, Sessions: []sessionPlan{{}}},
	}})
	added := d.next()
	require.True(t, added.session.Send(&workerproto.Job{
		Execution: workerproto.Execution{Job: 1, Attempt: 1}, Type: "pdf", Payload: []byte(`"x"`),
	}))
	failed, ok := d.next().frame.(*workerproto.Fail)
	require.True(t, ok)
	require.True(t, failed.Permanent)
	require.NoError(t, w.stop())
}
