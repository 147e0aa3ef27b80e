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

// An execution that is missing in the hello is lost, so a worker with many slots
// offers all executions before it announces free slots.
func TestAllExecutionsOfManySlotsAreOffered(t *testing.T) {
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
	s, hello := d.opened()
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
	_, hello = d.opened()
	require.Len(t, hello.Running, busy)
}

// The dispatcher ends the session because one job ignored its cancel.
func TestJobThatIgnoredItsCancelIsNotOffered(t *testing.T) {
	limits := workerproto.Limits{Resume: time.Minute}
	d := startDispatcher(t, limits)
	d.resume = true
	w := New(Options{Socket: d.path, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	started, finish := make(chan error, 2), make(chan bool)
	w.Handle("x", func(ctx context.Context, job *Job) (any, error) {
		started <- nil
		<-finish
		return int64(job.ID), context.Cause(ctx)
	})
	w.Slots(2, "x")
	run(t, w)
	s, hello := d.opened()
	require.True(t, hello.Resumes)
	nonce := s.Nonce()
	for i := range 2 {
		require.True(t, push(s, dispatcherd.JobID(i+1), int32(i), "x", `null`))
		<-started
	}
	s.Close(workerproto.Complain(workerproto.CancelIgnored, "it has not ended").About(1))
	d.ended()
	_, hello = d.opened()
	require.Empty(t, hello.Slots, "the handler that ignores its context still occupies its slot")
	require.Len(t, hello.Running, 1)
	require.EqualValues(t, 2, hello.Running[0].Job)
	close(finish)
	done := map[dispatcherd.JobID]bool{}
	added := 0
	for len(done)+added < 2 {
		switch f := d.next().frame.(type) {
		case *workerproto.Done:
			done[f.Job] = true
			require.NotEqual(t, nonce, f.Session, "it is reported in the new session")
		case *workerproto.SlotAdd:
			added += len(f.Slots)
		}
	}
	require.Equal(t, map[dispatcherd.JobID]bool{2: true}, done)
}

// Each offer carries the nonce of the session in which the execution began, and a
// higher generation than the last one.
func TestOfferCarriesTheFirstSessionAndTheNextGeneration(t *testing.T) {
	limits := workerproto.Limits{Resume: time.Minute}
	d := startDispatcher(t, limits)
	d.resume = true
	w := New(Options{Socket: d.path, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	started, finish := make(chan bool), make(chan bool)
	w.Handle("x", func(context.Context, *Job) (any, error) { close(started); <-finish; return nil, nil })
	w.Slots(1, "x")
	run(t, w)
	first, _ := d.opened()
	require.True(t, push(first, 1, 0, "x", `null`))
	<-started
	generation := 0
	for range 3 {
		d.shutDown()
		d.ended()
		d.start(limits)
		_, hello := d.opened()
		require.Len(t, hello.Running, 1)
		require.Greater(t, hello.Running[0].Generation, generation)
		generation = hello.Running[0].Generation
		require.Equal(t, first.Nonce(), hello.Running[0].Session)
	}
	close(finish)
	expect[*workerproto.Done](d)
}

// interrupted restarts the dispatcher after the worker has sent reports. The worker
// does not know which of them the dispatcher has read.
func interrupted(t *testing.T, opts Options, result any, resumes bool) *dispatcher {
	limits := workerproto.Limits{Resume: time.Minute}
	d := startDispatcher(t, limits)
	opts.Socket, opts.MinBackoff, opts.MaxBackoff = d.path, time.Millisecond, 5*time.Millisecond
	w := New(opts)
	w.Handle("x", func(context.Context, *Job) (any, error) { return result, nil })
	w.Slots(2, "x")
	run(t, w)
	s, _ := d.opened()
	require.True(t, push(s, 1, 0, "x", `null`))
	require.EqualValues(t, 1, expect[*workerproto.Done](d).Job)
	require.True(t, push(s, 2, 0, "x", `null`), "a second job for the slot shows that the dispatcher has read the first report")
	require.EqualValues(t, 2, expect[*workerproto.Done](d).Job)
	require.True(t, pushMode(s, -3, dispatcherd.OnDemand, 1, "x", `null`))
	require.EqualValues(t, -3, expect[*workerproto.Done](d).Job)
	d.shutDown()
	d.ended()
	d.resume = resumes
	d.start(limits)
	return d
}

func TestUnacknowledgedReportIsSentAgain(t *testing.T) {
	d := interrupted(t, Options{}, "fine", true)
	for range 2 { // the dispatcher may have missed the report the second time as well
		s, hello := d.opened()
		require.Len(t, hello.Running, 1, "neither the first job nor the request is offered")
		require.EqualValues(t, 2, hello.Running[0].Job)
		require.Len(t, hello.Slots, 1)
		done := expect[*workerproto.Done](d)
		require.EqualValues(t, 2, done.Job)
		require.Equal(t, s.Nonce(), done.Session)
		require.JSONEq(t, `"fine"`, string(done.Result))
		d.shutDown()
		d.ended()
		d.start(workerproto.Limits{Resume: time.Minute})
	}
}

func TestReportThatIsNotResumedIsDropped(t *testing.T) {
	d := interrupted(t, Options{}, nil, false)
	_, hello := d.opened()
	require.Len(t, hello.Running, 1)
	require.Len(t, expect[*workerproto.SlotAdd](d).Slots, 1)
	d.shutDown()
	d.ended()
	d.start(workerproto.Limits{})
	_, hello = d.opened()
	require.Empty(t, hello.Running)
	require.Len(t, hello.Slots, 2)
}

func TestReportsBeyondTheLimitAreNotKept(t *testing.T) {
	d := interrupted(t, Options{KeptReports: 10}, "more than ten bytes", true)
	_, hello := d.opened()
	require.Empty(t, hello.Running)
	require.Len(t, hello.Slots, 2)
}

// If a connection outlasts two heartbeat periods, the dispatcher has read the
// report.
func TestReportIsDroppedAfterTwoPeriods(t *testing.T) {
	w := New(Options{})
	w.Handle("x", func(context.Context, *Job) (any, error) { return nil, nil })
	w.Slots(1, "x")
	w.resume = time.Minute
	e := &execution{w: w, slot: w.slots[0], job: Job{ID: 1}}
	w.keepReportLocked(e, &workerproto.Fail{Error: "boom"})
	require.Equal(t, 4, w.kept)
	w.nextPeriod()
	require.NotNil(t, w.slots[0].unacknowledged, "the report may have been sent just before")
	w.nextPeriod()
	require.Nil(t, w.slots[0].unacknowledged)
	require.Zero(t, w.kept)
}
