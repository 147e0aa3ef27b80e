//go:build unix

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

func TestHandlerGetsTheJobAndItsResultIsReported(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path, Name: "w1"})
	w.Handle("pdf", func(_ context.Context, job *Job) (any, error) {
		var in struct{ Page int }
		if err := job.Decode(&in); err != nil {
			return nil, err
		}
		job.Progress(1, 2, "half")
		job.Log(workerproto.LevelWarn, "font %s missing", "Arial")
		if err := job.Partial([]int{in.Page}); err != nil {
			return nil, err
		}
		return map[string]any{"page": in.Page, "slot": job.Slot, "mode": job.Mode.String(), "attempt": job.Attempt}, nil
	})
	w.Slots(2, "pdf")
	run(t, w)
	s, hello := d.opened()
	require.Equal(t, "w1", hello.Worker)
	require.Equal(t, []workerproto.Slot{{Number: 0, Types: []string{"pdf"}}, {Number: 1, Types: []string{"pdf"}}}, hello.Slots)

	require.True(t, push(s, 7, 1, "pdf", `{"Page":3}`))
	progress := expect[*workerproto.Progress](d)
	require.Equal(t, int64(1), progress.Done)
	require.Equal(t, "half", progress.Message)
	require.Equal(t, "font Arial missing", expect[*workerproto.Log](d).Message)
	require.JSONEq(t, `[3]`, string(expect[*workerproto.Partial](d).Data))
	done := expect[*workerproto.Done](d)
	require.Equal(t, workerproto.Execution{Job: 7, Attempt: 1, Session: s.Nonce()}, done.Execution)
	require.JSONEq(t, `{"page":3,"slot":1,"mode":"queued","attempt":1}`, string(done.Result))
}

func TestBytesOfAResultAreJSON(t *testing.T) {
	for _, result := range []any{[]byte(`{"pages":3}`), json.RawMessage(`{"pages":3}`), map[string]int{"pages": 3}} {
		raw, err := encode(result)
		require.NoError(t, err)
		require.Equal(t, `{"pages":3}`, string(raw))
	}
	_, err := encode([]byte("%PDF-1.7"))
	require.ErrorContains(t, err, "the result is not JSON")
	raw, err := encode([]byte(nil))
	require.NoError(t, err)
	require.Nil(t, raw)
}

// The frame is written after the handler has returned.
func TestHandlerMayReuseTheBytesOfAResult(t *testing.T) {
	buffer := []byte(`{"pages":3}`)
	raw, err := encode(buffer)
	require.NoError(t, err)
	copy(buffer, `no JSON`)
	require.Equal(t, `{"pages":3}`, string(raw))
}

func TestErrorDecidesWhetherTheJobIsRetried(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		handler   Handler
		want      string
		permanent bool
		after     time.Duration
	}{
		"plain error": {func(context.Context, *Job) (any, error) { return nil, boom }, "boom", false, 0},
		"permanent":   {func(context.Context, *Job) (any, error) { return nil, Permanent(boom) }, "boom", true, 0},
		"retry after": {
			func(context.Context, *Job) (any, error) { return nil, RetryAfter(boom, 3*time.Second) },
			"boom",
			false,
			3 * time.Second,
		},
		"panic":              {func(context.Context, *Job) (any, error) { panic("ouch") }, "panic: ouch", false, 0},
		"result is not JSON": {func(context.Context, *Job) (any, error) { return make(chan int), nil }, "unsupported type", true, 0},
		"NUL in the result":  {func(context.Context, *Job) (any, error) { return "a\x00b", nil }, "Postgres cannot store", true, 0},
		"result is too long": {
			func(context.Context, *Job) (any, error) { return strings.Repeat("x", 1<<20), nil },
			"too long for a frame",
			true,
			0,
		},
		"payload is malformed": {func(_ context.Context, j *Job) (any, error) { return nil, j.Decode(new([]int)) }, "payload of job 7", true, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := startDispatcher(t, workerproto.Limits{})
			w := New(Options{Socket: d.path})
			w.Handle("x", c.handler)
			w.Slots(1, "x")
			run(t, w)
			s, _ := d.opened()
			push(s, 7, 0, "x", `{}`)
			fail := expect[*workerproto.Fail](d)
			require.Contains(t, fail.Error, c.want)
			require.Equal(t, c.permanent, fail.Permanent)
			require.Equal(t, c.after, fail.RetryAfter)
			push(s, 8, 0, "x", `{}`) // the worker continues
			expect[*workerproto.Fail](d)
		})
	}
}

func TestPanicIsReportedWithItsStack(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path})
	w.Handle("x", func(context.Context, *Job) (any, error) { panic("ouch") })
	w.Slots(1, "x")
	run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "x", `null`)
	require.Contains(t, expect[*workerproto.Fail](d).Error, "worker_test.go")
}

// waiting is a handler that ends when its context ends.
func waiting(started chan<- *Job) Handler {
	return func(ctx context.Context, job *Job) (any, error) {
		started <- job
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

// startWaiting runs a worker with one slot. Its jobs of type x wait until they are
// cancelled.
func startWaiting(t *testing.T) (*dispatcher, *workerproto.Session, <-chan *Job) {
	t.Helper()
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path})
	started := make(chan *Job, 1)
	w.Handle("x", waiting(started))
	w.Slots(1, "x")
	run(t, w)
	s, _ := d.opened()
	return d, s, started
}

func TestCancelReachesTheHandlerWithItsReason(t *testing.T) {
	d, s, started := startWaiting(t)
	push(s, 1, 0, "x", `null`)
	<-started
	s.Send(&workerproto.Cancel{Execution: workerproto.Execution{Job: 1, Attempt: 2}, Reason: "another attempt"})
	s.Send(&workerproto.Cancel{Execution: workerproto.Execution{Job: 1, Attempt: 1}, Reason: "by the caller"})
	fail := expect[*workerproto.Fail](d)
	require.Equal(t, ErrCancelled.Error()+": by the caller", fail.Error)
	require.True(t, fail.Permanent)
}

func TestContextEndsWhenTheHandlerHasReturned(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path})
	contexts := make(chan context.Context, 1)
	w.Handle("x", func(ctx context.Context, _ *Job) (any, error) {
		contexts <- ctx
		return nil, ctx.Err()
	})
	w.Slots(1, "x")
	run(t, w)
	s, _ := d.opened()
	for id, limit := range []time.Duration{0, time.Hour} {
		require.True(
			t,
			s.Send(&workerproto.Job{Execution: workerproto.Execution{Job: dispatcherd.JobID(id + 1), Attempt: 1}, Type: "x", Timeout: limit}),
		)
		expect[*workerproto.Done](d)
		ctx := <-contexts
		<-ctx.Done()
		require.Equal(t, context.Canceled, context.Cause(ctx))
	}
}

func TestTimeoutEndsTheContext(t *testing.T) {
	d, s, started := startWaiting(t)
	s.Send(&workerproto.Job{Execution: workerproto.Execution{Job: 1, Attempt: 1}, Type: "x", Timeout: 5 * time.Millisecond})
	<-started
	fail := expect[*workerproto.Fail](d)
	require.Equal(t, ErrTimeout.Error()+": 5ms", fail.Error)
	require.False(t, fail.Permanent)
}

// The dispatcher's timeout starts earlier, so its cancel may arrive before the
// deadline.
func TestCancelForTimeoutHasTheCauseOfTheDeadline(t *testing.T) {
	d, s, started := startWaiting(t)
	for i, limit := range []time.Duration{time.Hour, 0} {
		name := workerproto.Execution{Job: dispatcherd.JobID(i + 1), Attempt: 1}
		s.Send(&workerproto.Job{Execution: name, Type: "x", Timeout: limit})
		<-started
		s.Send(&workerproto.Cancel{Execution: name, Reason: workerproto.ReasonTimeout})
		fail := expect[*workerproto.Fail](d)
		require.Equal(t, []string{ErrTimeout.Error() + ": 1h0m0s", ErrTimeout.Error()}[i], fail.Error)
		require.False(t, fail.Permanent)
	}
}

func TestStopLetsRunningJobsFinish(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path})
	started, finish := make(chan bool, 1), make(chan bool)
	w.Handle("x", func(context.Context, *Job) (any, error) { started <- true; <-finish; return "late", nil })
	w.Slots(2, "x")
	r := run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "x", `null`)
	<-started
	r.stop()
	expect[*workerproto.Drain](d)
	push(s, 2, 1, "x", `null`) // this job crosses the drain
	require.Equal(t, dispatcherd.JobID(2), expect[*workerproto.Release](d).Job)
	close(finish)
	require.JSONEq(t, `"late"`, string(expect[*workerproto.Done](d).Result))
	require.NoError(t, r.wait())
	require.Equal(t, io.EOF, d.ended())
}

func TestJobsAreReleasedAfterTheGracePeriod(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path, Grace: time.Millisecond})
	started := make(chan *Job, 1)
	w.Handle("x", waiting(started))
	w.Slots(1, "x")
	r := run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "x", `null`)
	<-started
	r.stop()
	expect[*workerproto.Drain](d)
	require.Equal(t, ErrStopping.Error(), expect[*workerproto.Release](d).Reason)
	require.NoError(t, r.wait())
}

// stubborn runs a worker with a job whose handler ignores its context until finish is closed. Then it closes ended.
func stubborn(t *testing.T, d *dispatcher, w *Worker) (r *running, finish, ended chan bool) {
	t.Helper()
	started := make(chan bool, 1)
	finish, ended = make(chan bool), make(chan bool)
	w.Handle("x", func(context.Context, *Job) (any, error) {
		defer close(ended)
		started <- true
		<-finish
		return nil, nil
	})
	w.Slots(1, "x")
	r = run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "x", `null`)
	<-started
	return r, finish, ended
}

func TestHandlerThatIgnoresItsContextIsAbandoned(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path, Grace: time.Millisecond, Abandon: time.Millisecond})
	r, finish, ended := stubborn(t, d, w)
	r.stop()
	require.ErrorContains(t, r.wait(), "1 jobs were still running")
	close(finish)
	<-ended
}

func TestSlotsAreAddedAndRemoved(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path})
	started, finish := make(chan int32, 1), make(chan bool)
	w.Handle("x", func(_ context.Context, j *Job) (any, error) { started <- j.Slot; <-finish; return nil, nil })
	w.Slots(1, "x")
	run(t, w)
	s, _ := d.opened()

	numbers, err := w.AddSlots(2, "x")
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2}, numbers)
	require.Len(t, expect[*workerproto.SlotAdd](d).Slots, 2)
	_, err = w.AddSlots(1, "y")
	require.ErrorContains(t, err, `type "y" has no handler`)

	push(s, 1, 2, "x", `null`)
	require.Equal(t, int32(2), <-started)
	w.RemoveSlots(0, 2, 99)
	require.Equal(t, []int32{0, 2}, expect[*workerproto.SlotRemove](d).Slots)
	push(s, 2, 0, "x", `null`) // this job crosses the removal
	require.Equal(t, dispatcherd.JobID(2), expect[*workerproto.Release](d).Job)
	close(finish)
	require.Equal(t, dispatcherd.JobID(1), expect[*workerproto.Done](d).Job)
}

// The dispatcher rejects a complete frame if it contains one slot too many.
func TestNoMoreSlotsAreAnnouncedThanTheDispatcherAccepts(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{MaxSlots: 3})
	refused := make(chan *workerproto.Error, 10)
	w := New(Options{Socket: d.path, Complaint: func(e *workerproto.Error) { refused <- e }})
	w.Handle("x", func(context.Context, *Job) (any, error) { return nil, nil })
	w.Slots(2, "x")
	run(t, w)
	d.opened()
	_, err := w.AddSlots(4, "x")
	require.NoError(t, err)
	require.Len(t, expect[*workerproto.SlotAdd](d).Slots, 1)
	w.RemoveSlots(0, 1)
	require.Len(t, expect[*workerproto.SlotRemove](d).Slots, 2)
	require.Len(t, expect[*workerproto.SlotAdd](d).Slots, 2, "further slots replace the removed ones")
	_, err = w.AddSlots(1, "x")
	require.NoError(t, err)
	w.RemoveSlots(2)
	expect[*workerproto.SlotRemove](d)
	require.Equal(t, int32(5), expect[*workerproto.SlotAdd](d).Slots[0].Number)
	require.Empty(t, refused)
}

// A removed slot counts towards the limit until its job has ended.
func TestFreeSlotReplacesARemovedOneWhenItsJobEnds(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{MaxSlots: 1})
	refused := make(chan *workerproto.Error, 10)
	w := New(Options{Socket: d.path, Complaint: func(e *workerproto.Error) { refused <- e }})
	started, finish := make(chan bool, 1), make(chan bool)
	w.Handle("x", func(context.Context, *Job) (any, error) { started <- true; <-finish; return nil, nil })
	w.Slots(1, "x")
	run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "x", `null`)
	<-started
	_, err := w.AddSlots(1, "x")
	require.NoError(t, err)
	w.RemoveSlots(0)
	require.Equal(t, []int32{0}, expect[*workerproto.SlotRemove](d).Slots)
	close(finish)
	require.Equal(t, dispatcherd.JobID(1), expect[*workerproto.Done](d).Job)
	require.Equal(t, int32(1), expect[*workerproto.SlotAdd](d).Slots[0].Number)
	push(s, 2, 1, "x", `null`)
	require.Equal(t, dispatcherd.JobID(2), expect[*workerproto.Done](d).Job)
	require.Empty(t, refused)
}

// An error is either returned by Run or reported to Disconnected, never both.
func TestPermanentRefusalIsReturnedByRunOnly(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{MaxSlots: 1, Permit: func(workerproto.Peer, string) string { return "never" }})
	reported := make(chan error, 10)
	w := New(Options{Socket: d.path, Disconnected: func(err error) { reported <- err },
		Complaint: func(e *workerproto.Error) { reported <- e }})
	w.Handle("x", func(context.Context, *Job) (any, error) { return nil, nil })
	w.Slots(1, "x")
	require.ErrorContains(t, w.Run(t.Context()), "never")
	require.Empty(t, reported)
}

func TestReconnectAnnouncesOnlyFreeSlots(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	connected := make(chan workerproto.Welcome, 10)
	w := New(Options{Socket: d.path, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond,
		Connected: func(w workerproto.Welcome) { connected <- w }})
	started, finish := make(chan context.Context, 1), make(chan bool)
	w.Handle("x", func(ctx context.Context, _ *Job) (any, error) { started <- ctx; <-finish; return nil, nil })
	w.Slots(2, "x")
	run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "x", `null`)
	ctx := <-started
	d.shutDown()
	d.ended()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), ErrLost)
	d.start(workerproto.Limits{})
	_, hello := d.opened()
	require.Equal(t, []workerproto.Slot{{Number: 1, Types: []string{"x"}}}, hello.Slots)
	require.Empty(t, hello.Running)
	close(finish)
	require.Equal(t, int32(0), expect[*workerproto.SlotAdd](d).Slots[0].Number)
	require.NotEqual(t, (<-connected).Session, (<-connected).Session)
}

func TestSocketIsChosenBeforeEachConnection(t *testing.T) {
	first, second := startDispatcher(t, workerproto.Limits{}), startDispatcher(t, workerproto.Limits{})
	sockets := make(chan string, 2)
	sockets <- first.path
	w := New(Options{FindSocket: func() string { return <-sockets }, MinBackoff: time.Millisecond})
	w.Slots(1, "x")
	w.Handle("x", func(context.Context, *Job) (any, error) { return nil, nil })
	run(t, w)
	first.opened()
	sockets <- second.path
	first.shutDown()
	second.opened()
}

func TestExecutionsAreResumedOnTheNextConnection(t *testing.T) {
	limits := workerproto.Limits{Resume: time.Minute}
	d := startDispatcher(t, limits)
	d.resume = true
	lost := make(chan error, 10000)
	w := New(Options{Socket: d.path, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond,
		Disconnected: func(err error) { lost <- err }})
	started, finish := make(chan context.Context, 2), make(chan bool)
	w.Handle("slow", func(ctx context.Context, _ *Job) (any, error) { started <- ctx; <-finish; return "slow", nil })
	quick := make(chan bool)
	w.Handle("quick", func(ctx context.Context, _ *Job) (any, error) { started <- ctx; <-quick; return "quick", nil })
	w.Slots(1, "slow")
	w.Slots(1, "quick")
	run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "slow", `null`)
	slow := <-started
	push(s, 2, 1, "quick", `null`)
	<-started
	d.shutDown()
	d.ended()
	<-lost
	close(quick) // the job ends while there is no connection, and its report is kept
	d.start(limits)
	s2, hello := d.opened()
	require.Empty(t, hello.Slots)
	require.Len(t, hello.Running, 2)
	require.Equal(t, s.Nonce(), hello.Running[0].Session)
	require.Equal(t, int32(0), hello.Running[0].Number)

	done := expect[*workerproto.Done](d)
	require.Equal(t, workerproto.Execution{Job: 2, Attempt: 1, Session: s2.Nonce()}, done.Execution)
	require.NoError(t, slow.Err())
	close(finish)
	require.Equal(t, workerproto.Execution{Job: 1, Attempt: 1, Session: s2.Nonce()}, expect[*workerproto.Done](d).Execution)
	push(s2, 3, 1, "quick", `null`) // its slot is free again
	require.Equal(t, dispatcherd.JobID(3), expect[*workerproto.Done](d).Job)
}

func TestExecutionThatIsNotResumedEnds(t *testing.T) {
	limits := workerproto.Limits{Resume: time.Minute}
	d := startDispatcher(t, limits)
	w := New(Options{Socket: d.path, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	started := make(chan *Job, 2)
	w.Handle("x", waiting(started))
	w.Slots(1, "x")
	run(t, w)
	s, _ := d.opened()
	push(s, 1, 0, "x", `null`)
	<-started
	d.shutDown()
	d.ended()
	d.start(limits)
	_, hello := d.opened()
	require.Len(t, hello.Running, 1)
	require.Equal(t, int32(0), expect[*workerproto.SlotAdd](d).Slots[0].Number)
}

func TestPermanentRefusalEndsRun(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{MaxSlots: 1})
	w := New(Options{Socket: d.path})
	w.Handle("x", waiting(nil))
	w.Slots(2, "x")
	w2 := New(Options{Socket: d.path})
	w2.Slots(1, "x")
	require.ErrorContains(t, w.Run(context.Background()), "bad_slot")
	require.ErrorContains(t, w2.Run(context.Background()), "has no handler")
}

func TestImpossibleSocketPathEndsRunAtOnce(t *testing.T) {
	long := "/tmp/" + strings.Repeat("x", 195)
	for want, o := range map[string]Options{
		"it has 200 bytes, choose one of 1 to": {Socket: long},
		long:                                   {FindSocket: func() string { return long }},
		"it has 0 bytes":                       {FindSocket: func() string { return "" }},
		"set Socket or FindSocket":             {},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		o.Disconnected = func(error) { cancel() } // it would connect again
		require.ErrorContains(t, New(o).Run(ctx), want)
	}
}

// The dispatcher would reject the slot after the welcome, and the slot would stay idle.
func TestSlotWithTooManyTypesIsAnError(t *testing.T) {
	const want = "a slot supports 1 to 4096 types, not 5000"
	w := New(Options{Socket: "s"})
	types := make([]string, 5000)
	for i := range types {
		types[i] = fmt.Sprintf("a-type-with-a-long-name-%d", i)
		w.Handle(types[i], waiting(nil))
	}
	_, err := w.AddSlots(1, types...)
	require.ErrorContains(t, err, want)
	w.Slots(1, types...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, w.Run(ctx), "worker: slot 0: "+want)
}

// The error says in one line that a dispatcher refuses the worker, and that a handler was abandoned.
func TestRefusedWorkerSaysInOneLineWhatItAbandons(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path, Abandon: time.Millisecond})
	r, finish, ended := stubborn(t, d, w)
	d.shutDown()
	d.refuse = workerproto.Complain(workerproto.BadSlot, "slot 0: another one")
	d.start(workerproto.Limits{})
	err := r.wait()
	require.ErrorContains(t, err, "slot 0: another one; worker: 1 jobs were still running")
	require.NotContains(t, err.Error(), "\n")
	close(finish)
	<-ended
}
