//go:build unix

package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// The time of a detached execution ends while the dispatcher resumes it. Another
// dispatcher may then give the job to another worker, so the execution must not
// continue. The dispatcher considers the slot busy. So the worker removes the slot,
// returns the job, and announces the slot when the handler has returned.
func TestExecutionThatExpiresWhileItIsResumedIsReturned(t *testing.T) {
	limits := workerproto.Limits{Resume: time.Minute}
	d := startDispatcher(t, limits)
	d.resume = true
	w := New(Options{Socket: d.path, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	started, finish := make(chan bool, 1), make(chan bool, 2)
	w.Handle("x", func(ctx context.Context, _ *Job) (any, error) {
		started <- true
		<-finish
		return nil, ctx.Err()
	})
	w.Slots(1, "x")
	run(t, w)
	s, _ := d.opened()
	require.True(t, push(s, 1, 0, "x", `null`))
	<-started
	d.before = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.slots[0].run.loseLocked()
	}
	d.shutDown()
	d.ended()
	d.start(limits)
	s, hello := d.opened()
	require.Len(t, hello.Running, 1)
	require.Equal(t, []int32{0}, expect[*workerproto.SlotRemove](d).Slots)
	require.EqualValues(t, 1, expect[*workerproto.Release](d).Job)
	finish <- true
	require.Len(t, expect[*workerproto.SlotAdd](d).Slots, 1)
	require.True(t, push(s, 2, 0, "x", `null`))
	<-started
	finish <- true
	require.EqualValues(t, 2, expect[*workerproto.Done](d).Job)
}

func TestExecutionThatExpiresWhileTheWorkerIsRefusedIsLost(t *testing.T) {
	limits := workerproto.Limits{Resume: time.Minute}
	d := startDispatcher(t, limits)
	w := New(Options{Socket: d.path, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	started, lost := make(chan bool, 1), make(chan error, 1)
	w.Handle("x", func(ctx context.Context, _ *Job) (any, error) {
		started <- true
		<-ctx.Done()
		lost <- context.Cause(ctx)
		return nil, nil
	})
	w.Slots(1, "x")
	run(t, w)
	s, _ := d.opened()
	require.True(t, push(s, 1, 0, "x", `null`))
	<-started
	d.before = func() {
		w.mu.Lock()
		w.slots[0].run.loseLocked()
		w.mu.Unlock()
		d.before = nil
		d.refuse = workerproto.Complain(workerproto.ShuttingDown, "come again")
	}
	d.shutDown()
	d.ended()
	d.start(limits)
	require.ErrorIs(t, <-lost, ErrLost)
}
