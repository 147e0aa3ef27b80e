package traces

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/trace"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// simpleHost is a daemon without a table and without scores. The first waiting
// job that fits goes to the first free slot. It uses the real protocol.
type simpleHost struct {
	path   string
	refuse string // all jobs of this type fail

	mu       sync.Mutex
	free     []simpleSlot
	waiting  []simpleJob
	running  map[dispatcherd.JobID]simpleJob
	last     dispatcherd.JobID
	done     int
	failed   int
	findings trace.Findings
}

type simpleSlot struct {
	session *workerproto.Session
	workerproto.Slot
}

type simpleJob struct {
	replayJob
	slot  simpleSlot
	reply chan error // nil: queued
}

func startSimpleHost(t *testing.T) *simpleHost {
	t.Helper()
	h := &simpleHost{path: filepath.Join(t.TempDir(), "w.sock"), running: map[dispatcherd.JobID]simpleJob{}}
	l, err := workerproto.Access{Mode: 0o600}.Listen(h.path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- workerproto.Serve(ctx, l, workerproto.Limits{}, h, nil) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	return h
}

func (h *simpleHost) Socket() string                                      { return h.path }
func (h *simpleHost) Open(*workerproto.Session, *workerproto.Hello) error { return nil }
func (h *simpleHost) Closed(*workerproto.Session, error)                  {}

func (h *simpleHost) Insert(_ context.Context, jobs []replayJob) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range jobs {
		h.waiting = append(h.waiting, simpleJob{replayJob: j})
	}
	h.place()
	return nil
}

func (h *simpleHost) Request(ctx context.Context, job replayJob) error {
	reply := make(chan error, 1)
	h.mu.Lock()
	h.waiting = append(h.waiting, simpleJob{replayJob: job, reply: reply})
	h.place()
	h.mu.Unlock()
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *simpleHost) Tally(context.Context) (int, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.done, h.failed, nil
}

func (h *simpleHost) Findings() trace.Findings {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.findings
}

func (h *simpleHost) Frames(s *workerproto.Session, frames []workerproto.WorkerFrame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range frames {
		switch f := f.(type) {
		case *workerproto.SlotAdd:
			for _, slot := range f.Slots {
				h.free = append(h.free, simpleSlot{s, slot})
			}
		case *workerproto.SlotRemove:
			h.free = slices.DeleteFunc(h.free, func(x simpleSlot) bool { return x.session == s && slices.Contains(f.Slots, x.Number) })
		case *workerproto.Done:
			h.end(f.Job)
		case *workerproto.Release: // the slot has gone offline in the meantime
			j := h.running[f.Job]
			delete(h.running, f.Job)
			h.waiting = append(h.waiting, j)
		}
	}
	h.place()
}

func (h *simpleHost) end(id dispatcherd.JobID) {
	j := h.running[id]
	delete(h.running, id)
	var err error
	if j.Type == h.refuse {
		err = errors.New("refused")
	}
	switch {
	case j.reply != nil:
		j.reply <- err
	case err != nil:
		h.failed++
	default:
		h.done++
	}
	h.free = append(h.free, j.slot)
}

func (h *simpleHost) place() {
	h.waiting = slices.DeleteFunc(h.waiting, func(j simpleJob) bool {
		i := slices.IndexFunc(h.free, func(s simpleSlot) bool { return slices.Contains(s.Types, j.Type) })
		if i < 0 {
			return false
		}
		j.slot = h.free[i]
		h.free = slices.Delete(h.free, i, i+1)
		h.last++
		h.running[h.last] = j
		h.findings.Placements++
		return j.slot.session.Send(&workerproto.Job{
			Execution: workerproto.Execution{Job: h.last, Attempt: 1}, Slot: j.slot.Number, Type: j.Type, Payload: j.Payload,
		})
	})
}

// shortTrace: two workers, a slot that goes offline at 2 s, both modes; 8 s long.
func shortTrace() *trace.Trace {
	tr := &trace.Trace{Name: "short", Slots: []trace.Slot{
		{ID: 1, Worker: "a", Types: []string{"x"}}, {ID: 2, Worker: "b", Types: []string{"x", "y"}},
	}, Events: []trace.SlotEvent{
		{AtMS: 0, Slot: 1, Kind: trace.Register}, {AtMS: 0, Slot: 2, Kind: trace.Register},
		{AtMS: 5000, Slot: 1, Kind: trace.Drain},
	}}
	for i := range int64(40) {
		j := trace.Job{ID: i + 1, ArrivalMS: i * 200, Type: "x", Mode: dispatcherd.Mode(i % 2), DurationMS: 100}
		if i%4 == 3 {
			j.Type = "y"
		}
		tr.Jobs = append(tr.Jobs, j)
	}
	return tr
}

func TestReplayRunsEveryJobOfTheTrace(t *testing.T) {
	tr := shortTrace()
	states := 0
	r := &replay{trace: tr, speed: 10, host: startSimpleHost(t), stall: longWait, live: func(replayState) { states++ }}
	report, err := r.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 40, report.Done)
	require.Equal(t, 0, report.Failed)
	require.Equal(t, trace.Findings{Placements: report.Findings.Placements}, report.Findings)
	require.GreaterOrEqual(t, report.Findings.Placements, 40) // a job that was sent to a slot that went offline is sent again
	require.GreaterOrEqual(t, report.Makespan, 7.9)
	require.Positive(t, states)

	var last bytes.Buffer
	require.Equal(t, exit.OK, summarize(&last, "demo", report, 3*time.Second))
	require.Equal(t, "demo: jobs=40 done=40 failed=0 lost=0 misplaced=0 affinity_violations=0 seconds=3.0\n", last.String())
}

func TestReplayCountsFailures(t *testing.T) {
	h := startSimpleHost(t)
	h.refuse = "y" // only on-demand ones
	r := &replay{trace: shortTrace(), speed: 20, host: h, stall: longWait}
	report, err := r.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 30, report.Done)
	require.Equal(t, 10, report.Failed)
	require.Zero(t, report.Findings.Lost)
	require.Equal(t, exit.Negative, summarize(io.Discard, "demo", report, time.Second))
}

func TestReplayWithoutProgressIsAborted(t *testing.T) {
	tr := shortTrace()
	tr.Slots[1].Types = []string{"z"} // no slot supports y
	r := &replay{trace: tr, speed: 40, host: startSimpleHost(t), stall: 3 * time.Second}
	report, err := r.run(t.Context())
	require.ErrorContains(t, err, "no progress for 3s")
	require.Positive(t, report.Done)
	require.Less(t, report.Done, 40)
	require.Equal(t, exit.Negative, summarize(io.Discard, "demo", report, time.Second))
}

func TestInterruptEndsAReplay(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := &replay{trace: shortTrace(), speed: 1, host: startSimpleHost(t), stall: time.Minute}
	r.live = func(s replayState) {
		if s.Executed > 1 {
			cancel()
		}
	}
	report, err := r.run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, report.Done, 40)
}

func TestReplayReportsWorkerThatCannotConnect(t *testing.T) {
	h := startSimpleHost(t)
	h.path = filepath.Join(t.TempDir(), strings.Repeat("x", 200))
	r := &replay{trace: shortTrace(), speed: 1, host: h, stall: time.Minute}
	_, err := r.run(t.Context())
	require.ErrorContains(t, err, "worker a: ")
	require.ErrorIs(t, err, workerproto.ErrSocketPath)
}
