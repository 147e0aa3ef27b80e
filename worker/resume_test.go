package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// What a hello leaves out is lost: a worker of very many slots brings along all
// that runs, whichever slots it is on, before it offers free ones.
func TestAllRunningWorkIsPresentedByAWorkerOfManySlots(t *testing.T) {
	const free, busy = 1000, 1000
	limits := workerproto.Limits{Resume: time.Minute}
	d := startDispatcher(t, limits)
	d.resume = true
	w := New(Options{Socket: d.path, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	started, finish := make(chan bool, busy), make(chan bool)
	w.Handle("x", func(context.Context, *Job) (any, error) { started <- true; <-finish; return nil, nil })
	w.Slots(free+busy, "x")
	run(t, w)
	t.Cleanup(func() { close(finish) })
	s, hello := d.greeted()
	for offered := len(hello.Slots); offered < free+busy; {
		offered += len(expect[*workerproto.SlotAdd](d).Slots)
	}
	for i := range busy {
		require.True(t, push(s, dispatcherd.JobID(i+1), int32(free+i), "x", `null`))
	}
	for range busy {
		<-started
	}
	d.shutDown()
	d.ended()
	d.start(limits)
	_, hello = d.greeted()
	require.Len(t, hello.Running, busy)
}
