package workerproto

import (
	"context"
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

func TestTheDispatcherLooksOutForTheAnswerToARequestAlone(t *testing.T) {
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
	require.IsType(t, &Stale{}, p.receive(), "the writer goes on")
	require.Empty(t, obs.found)
}

// Who stays awake for an answer does not take its own waking for a sign of life.
func TestASilentWorkerIsGivenUpHoweverManyAnswersAreExpectedOfIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere nobody looks out")
	}
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	h := newRecorder()
	limits := Limits{Lookout: time.Microsecond, Alone: func() bool { return true }, HeartbeatInterval: 50 * time.Millisecond, HeartbeatTimeout: 150 * time.Millisecond}
	p := dial(t, serve(t, limits, h, NoObserver{}))
	p.send(helloLine)
	require.IsType(t, &Welcome{}, p.receive())
	s := <-h.opened
	job := &Job{Execution: Execution{Job: 1, Attempt: 1}, Slot: 1, Type: "pdf", Mode: dispatcherd.OnDemand}
	pings, jobs := 0, 0
	for s.Send(job) { // the dispatcher wakes for many of them
		switch f := p.receive().(type) {
		case *Ping:
			pings++
		case *Job:
			jobs++
		case *Error:
			require.Equal(t, HeartbeatTimeout, f.Code)
			require.Greater(t, jobs, 3)
			require.LessOrEqual(t, pings, 3)
			return
		}
	}
	var rule *Error
	require.ErrorAs(t, await(t, h.closed), &rule)
	require.Equal(t, HeartbeatTimeout, rule.Code)
	require.LessOrEqual(t, pings, 3)
}

// A worker stays awake after a request that came alone, and after nothing else.
func TestAWorkerLooksOutForTheNextRequest(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.NumCPU() == 1 {
		t.Skip("there nobody looks out")
	}
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	h := newRecorder()
	path := serve(t, Limits{}, h, nil)
	c, err := Dial(context.Background(), path, &Hello{Worker: "w", Slots: []Slot{{1, []string{"pdf"}}}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	s := <-h.opened
	asked := 0
	c.LookOut(time.Minute, func() bool { asked++; return asked < 4 })
	receive := func(f DispatcherFrame) {
		t.Helper()
		require.True(t, s.Send(f))
		got, err := c.Receive()
		require.NoError(t, err)
		require.Len(t, got, 1)
	}
	job := func(mode dispatcherd.Mode) *Job {
		return &Job{Execution: Execution{Job: 1, Attempt: 1}, Slot: 1, Type: "pdf", Mode: mode}
	}
	receive(job(dispatcherd.Queued))
	receive(&Stale{Execution: Execution{Job: 1, Attempt: 1}})
	receive(job(dispatcherd.OnDemand))
	require.Zero(t, asked)
	receive(&Stale{Execution: Execution{Job: 1, Attempt: 1}})
	require.Positive(t, asked)
	asked = 0
	receive(job(dispatcherd.Queued))
	require.Zero(t, asked)
}
