//go:build unix

package worker

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// A slow handler delays neither the jobs that arrived in the same batch nor the
// reports of jobs that have ended.
func TestSlowHandlerDelaysNoOtherJob(t *testing.T) {
	const slots = 8
	d := startDispatcher(t, workerproto.Limits{})
	w := New(Options{Socket: d.path})
	release := make(chan struct{})
	w.Handle("slow", func(context.Context, *Job) (any, error) {
		<-release
		return nil, nil
	})
	w.Handle("quick", func(context.Context, *Job) (any, error) { return nil, nil })
	w.Slots(2*slots, "slow", "quick")
	run(t, w)
	s, _ := d.opened()
	for i := range slots { // the jobs arrive in one batch, so a single executor could take all of them
		require.True(t, push(s, dispatcherd.JobID(2*i+1), int32(2*i), "slow", `{}`))
		require.True(t, push(s, dispatcherd.JobID(2*i+2), int32(2*i+1), "quick", `{}`))
	}
	done := map[dispatcherd.JobID]bool{}
	for range slots {
		done[expect[*workerproto.Done](d).Job] = true
	}
	for i := range slots {
		require.True(t, done[dispatcherd.JobID(2*i+2)], "exactly the quick jobs must be done: %v", done)
	}
	close(release)
	for range slots {
		require.Equal(t, dispatcherd.JobID(1), expect[*workerproto.Done](d).Job%2)
	}
}

// A handler that calls runtime.Goexit ends its executor, even if a deferred function then
// panics. Queued jobs and the report are not lost.
func TestExecutorThatEndsIsReplaced(t *testing.T) {
	d := startDispatcher(t, workerproto.Limits{HeartbeatInterval: time.Hour}) // a heartbeat would flush the reports
	w := New(Options{Socket: d.path})
	w.Handle("x", func(_ context.Context, job *Job) (any, error) {
		if job.ID%4 == 1 {
			defer panic("after Goexit")
		}
		if job.ID%2 == 1 {
			runtime.Goexit()
		}
		return nil, nil
	})
	w.Slots(20, "x")
	run(t, w)
	s, _ := d.opened()
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
