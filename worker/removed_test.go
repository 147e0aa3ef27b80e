//go:build unix

package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// restart runs job 1 on slot 0 of a worker and restarts the dispatcher. It calls the
// function before while the dispatcher is down. It calls the function meanwhile after the
// offer has arrived and before the dispatcher resumes it.
func restart(t *testing.T, before, meanwhile func(*Worker)) (d *dispatcher, finish chan bool) {
	limits := workerproto.Limits{Resume: time.Minute}
	d = startDispatcher(t, limits)
	d.resume = true
	w := New(Options{Socket: d.path, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	started, finish := make(chan bool, 1), make(chan bool)
	w.Handle("x", func(context.Context, *Job) (any, error) { started <- true; <-finish; return nil, nil })
	w.Slots(1, "x")
	run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "x", `null`)
	<-started
	d.shutDown()
	d.ended()
	before(w)
	d.before = func() { meanwhile(w) }
	d.start(limits)
	_, hello := d.opened()
	require.Len(t, hello.Running, 1)
	return d, finish
}

func TestRemovedSlotOfAResumedExecutionIsWithdrawn(t *testing.T) {
	remove, nothing := func(w *Worker) { w.RemoveSlots(0) }, func(*Worker) {}
	for name, when := range map[string][2]func(*Worker){
		"before the hello": {remove, nothing}, "after the hello": {nothing, remove},
	} {
		t.Run(name, func(t *testing.T) {
			d, finish := restart(t, when[0], when[1])
			require.Equal(t, []int32{0}, expect[*workerproto.SlotRemove](d).Slots)
			close(finish)
			require.Equal(t, dispatcherd.JobID(1), expect[*workerproto.Done](d).Job)
		})
	}
}

func TestExecutionLostWhileItIsResumedIsReleased(t *testing.T) {
	d, finish := restart(t, func(*Worker) {}, func(w *Worker) {
		w.mu.Lock() // the worker stops while it has no connection
		defer w.mu.Unlock()
		w.slots[0].run.loseLocked()
	})
	require.Equal(t, []int32{0}, expect[*workerproto.SlotRemove](d).Slots)
	require.Equal(t, dispatcherd.JobID(1), expect[*workerproto.Release](d).Job)
	close(finish) // so that its slot is free
	require.Equal(t, int32(0), expect[*workerproto.SlotAdd](d).Slots[0].Number)
}
