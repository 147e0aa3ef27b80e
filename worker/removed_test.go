package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// cutOff returns a dispatcher that comes back once meanwhile was called, and a
// worker that runs job 1 on its slot 0 from before.
func cutOff(t *testing.T, before, meanwhile func(*Worker)) (d *dispatcher, finish chan bool) {
	limits := workerproto.Limits{Resume: time.Minute}
	d = startDispatcher(t, limits)
	d.resume = true
	w := New(Options{Socket: d.path, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	started, finish := make(chan bool, 1), make(chan bool)
	w.Handle("x", func(context.Context, *Job) (any, error) { started <- true; <-finish; return nil, nil })
	w.Slots(1, "x")
	run(t, w)
	s, _ := d.greeted()
	push(s, 1, 0, "x", `null`)
	<-started
	d.shutDown()
	d.ended()
	before(w)
	d.before = func() { meanwhile(w) }
	d.start(limits)
	_, hello := d.greeted()
	require.Len(t, hello.Running, 1)
	return d, finish
}

// A slot that was removed takes no more jobs, however late the dispatcher hears
// of it: each would only be given back.
func TestARemovedSlotThatIsResumedIsWithdrawn(t *testing.T) {
	remove, nothing := func(w *Worker) { w.RemoveSlots(0) }, func(*Worker) {}
	for name, when := range map[string][2]func(*Worker){
		"before the hello": {remove, nothing}, "after the hello": {nothing, remove},
	} {
		t.Run(name, func(t *testing.T) {
			d, finish := cutOff(t, when[0], when[1])
			require.Equal(t, []int32{0}, expect[*workerproto.SlotRemove](d).Slots)
			close(finish)
			require.Equal(t, dispatcherd.JobID(1), expect[*workerproto.Done](d).Job)
		})
	}
}

func TestWorkGivenUpWhileItIsTakenBackIsGivenBack(t *testing.T) {
	d, finish := cutOff(t, func(*Worker) {}, func(w *Worker) {
		w.mu.Lock() // as a worker does that stops while nobody listens
		defer w.mu.Unlock()
		w.slots[0].run.loseLocked()
	})
	require.Equal(t, []int32{0}, expect[*workerproto.SlotRemove](d).Slots)
	require.Equal(t, dispatcherd.JobID(1), expect[*workerproto.Release](d).Job)
	close(finish) // its slot is free then
	require.Equal(t, int32(0), expect[*workerproto.SlotAdd](d).Slots[0].Number)
}
