package worker

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Handlers that take time hold up neither those that came with them nor the
// reports of those that are over.
func TestALongHandlerHoldsUpNobody(t *testing.T) {
	const slots = 8
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path})
	release := make(chan struct{})
	w.Handle("long", func(context.Context, *Job) (any, error) {
		<-release
		return nil, nil
	})
	w.Handle("quick", func(context.Context, *Job) (any, error) { return nil, nil })
	w.Slots(2*slots, "long", "quick")
	run(t, w)
	s, _ := d.greeted()
	for i := range slots { // in one burst, so that one hand would find them all
		require.True(t, push(s, dispatcherd.JobID(2*i+1), int32(2*i), "long", `{}`))
		require.True(t, push(s, dispatcherd.JobID(2*i+2), int32(2*i+1), "quick", `{}`))
	}
	seen := map[dispatcherd.JobID]bool{}
	for range slots {
		seen[expect[*workerproto.Done](d).Job] = true
	}
	for i := range slots {
		require.True(t, seen[dispatcherd.JobID(2*i+2)], "all quick ones and no others are done: %v", seen)
	}
	close(release)
	for range slots {
		require.Equal(t, dispatcherd.JobID(1), expect[*workerproto.Done](d).Job%2)
	}
}

// A handler that ends its goroutine takes a hand with it; the jobs behind it
// and the report are not lost.
func TestAHandThatEndsIsReplaced(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path})
	w.Handle("x", func(_ context.Context, job *Job) (any, error) {
		if job.ID%2 == 1 {
			runtime.Goexit()
		}
		return nil, nil
	})
	w.Slots(20, "x")
	run(t, w)
	s, _ := d.greeted()
	for i := range 20 {
		require.True(t, push(s, dispatcherd.JobID(i+1), int32(i), "x", `{}`))
	}
	done, failed := 0, 0
	for done+failed < 20 {
		switch ev := d.next(); ev.frame.(type) {
		case *workerproto.Done:
			done++
		case *workerproto.Fail:
			failed++
		}
	}
	require.Equal(t, 10, done)
	require.Equal(t, 10, failed)
}

func TestALifeIsAContext(t *testing.T) {
	var nobody life
	require.NoError(t, nobody.Err())
	_, bounded := nobody.Deadline()
	require.False(t, bounded)
	nobody.end(ErrStale)
	nobody.end(ErrLost)
	require.ErrorIs(t, nobody.Err(), context.Canceled)
	require.Equal(t, ErrStale, context.Cause(&nobody), "the first cause counts, also when nobody had looked before")

	var watched life
	child, cancel := context.WithCancel(&watched)
	defer cancel()
	var both sync.WaitGroup
	for _, c := range []context.Context{&watched, child} {
		both.Go(func() { <-c.Done() })
	}
	watched.end(ErrCancelled)
	both.Wait()
	require.Equal(t, ErrCancelled, context.Cause(child))

	short := life{timeout: time.Nanosecond}
	short.begin()
	<-short.Done()
	require.ErrorIs(t, short.Err(), context.DeadlineExceeded)
	require.ErrorIs(t, context.Cause(&short), ErrTimeout)
	require.NoError(t, short.cause(), "nobody ended it: it passed by itself")
	short.over()

	over := life{timeout: time.Hour}
	over.begin()
	require.NoError(t, over.Err())
	over.over()
	require.ErrorIs(t, over.Err(), context.Canceled, "a context outlives no handler")
}
