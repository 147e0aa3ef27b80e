package workerproto

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// watcher tells of lookouts.
type watcher struct {
	NoObserver
	found chan bool
}

func (w *watcher) LookedOut(found bool, _ time.Duration) { w.found <- found }

func TestTheWriterLooksOutForTheAnswerToARequestAlone(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere nobody looks out")
	}
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	var alone atomic.Bool
	alone.Store(true)
	h, obs := newRecorder(), &watcher{found: make(chan bool, 10)}
	p := dial(t, serve(t, Limits{Lookout: patience, Alone: alone.Load}, h, obs))
	p.send(`{"op":"hello","versions":[1,1],"worker":"w","slots":[{"slot":1,"types":["pdf"]}]}`)
	require.IsType(t, &Welcome{}, p.receive())
	s := <-h.opened
	job := func(mode dispatcherd.Mode) *Job {
		return &Job{Execution: Execution{Job: 1, Attempt: 1}, Slot: 1, Type: "pdf", Mode: mode}
	}
	require.True(t, s.Send(job(dispatcherd.Queued)))
	require.IsType(t, &Job{}, p.receive())
	require.True(t, s.Send(&Stale{Execution: Execution{Job: 1, Attempt: 1}}))
	require.IsType(t, &Stale{}, p.receive())
	require.Empty(t, obs.found)
	require.True(t, s.Send(job(dispatcherd.OnDemand)))
	require.IsType(t, &Job{}, p.receive())
	require.Empty(t, obs.found, "it goes on until there is something")
	p.send(`{"op":"ping"}`)
	require.True(t, <-obs.found)
	require.IsType(t, &Pong{}, p.receive())
	alone.Store(false)
	require.True(t, s.Send(job(dispatcherd.OnDemand)))
	require.IsType(t, &Job{}, p.receive())
	require.True(t, s.Send(&Stale{Execution: Execution{Job: 1, Attempt: 1}}))
	require.IsType(t, &Stale{}, p.receive(), "the writer went on")
	require.Empty(t, obs.found)
}
