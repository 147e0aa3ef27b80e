package settlement

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowstore"
)

var errTable = errors.New("the table is away")

// table answers statements and notes them.
type table struct {
	mu sync.Mutex
	state
}

// state needs mu.
type state struct {
	ends    int // portions of ends that are not counted
	old     int // portions of rows that are to be deleted
	blocked bool
	err     error
	wrong   int
	batches dispatcherd.JobID // that are open, with the ids from 1

	unrepairable error
	sent         []string
}

func (f *table) CountEnds(context.Context) (flowstore.Counted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, "count")
	if f.err != nil {
		return flowstore.Counted{}, f.err
	}
	f.ends = max(f.ends-1, 0)
	return flowstore.Counted{More: f.ends > 0, Blocked: f.blocked}, nil
}

func (f *table) Repair(_ context.Context, previous dispatcherd.JobID) (next dispatcherd.JobID, wrong int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, fmt.Sprint("repair ", previous))
	if previous >= f.batches {
		return 0, 0, f.unrepairable
	}
	if f.unrepairable != nil {
		return previous + 1, 0, f.unrepairable
	}
	return previous + 1, f.wrong, nil
}

func (f *table) Expire(context.Context, time.Duration) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, "expire")
	f.old = max(f.old-1, 0)
	return f.old > 0, nil
}

// set changes the state.
func (f *table) set(change func(s *state)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.state)
}

// taken returns the statements since the last call.
func (f *table) taken() (sent []string) {
	synctest.Wait()
	f.set(func(s *state) { sent, s.sent = s.sent, nil })
	return sent
}

// ignore is an observer.
type ignore struct{}

func (ignore) Stepped(string, time.Duration, background.Outcome, error) {}

// run tests a Settlement whose goroutine runs.
func run(t *testing.T, test func(t *testing.T, s *Settlement, f *table, log *observer.ObservedLogs)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, log := observer.New(zap.InfoLevel)
		f := &table{}
		s := New(Config{Table: f, Keep: time.Hour, Log: zap.New(core)})
		runner := background.New(ignore{}, s.Service())
		s.Wake = runner.Wake
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			runner.Run(ctx)
		}()
		require.Equal(t, []string{"count"}, f.taken())
		test(t, s, f, log)
		cancel()
		<-ended
	})
}

func after(d time.Duration) { <-time.After(d) }

func TestNoStatementIsSentWithoutNotification(t *testing.T) {
	run(t, func(t *testing.T, _ *Settlement, f *table, _ *observer.ObservedLogs) {
		after(expireEvery - time.Second)
		require.Empty(t, f.taken())
	})
}

func TestAllPortionsOfEndsAreCounted(t *testing.T) {
	run(t, func(t *testing.T, s *Settlement, f *table, _ *observer.ObservedLogs) {
		f.set(func(s *state) { s.ends = 3 })
		s.Wake(contract.EndsRecorded)
		require.Equal(t, []string{"count", "count", "count"}, f.taken())
		after(expireEvery / 2)
		require.Empty(t, f.taken())
	})
}

// Ends are counted between the portions of a long deletion.
func TestDeletionDoesNotDelayEnds(t *testing.T) {
	run(t, func(t *testing.T, _ *Settlement, f *table, _ *observer.ObservedLogs) {
		f.set(func(s *state) { s.old = 3 })
		after(expireEvery)
		require.Equal(t, []string{"count", "repair 0", "expire", "count", "expire", "count", "expire"}, f.taken())
	})
}

// A locked batch is tried again after pauses that double up to a second.
func TestLockedBatchIsTriedAgain(t *testing.T) {
	run(t, func(t *testing.T, s *Settlement, f *table, _ *observer.ObservedLogs) {
		f.set(func(s *state) { s.blocked = true })
		s.Wake(contract.EndsRecorded)
		require.Len(t, f.taken(), 1)
		for pause := blockedPause; pause < blockedMost; pause *= 2 {
			after(pause - 1)
			require.Empty(t, f.taken())
			after(1)
			require.Len(t, f.taken(), 1)
		}
		after(10 * blockedMost)
		require.Len(t, f.taken(), 10)
		f.set(func(s *state) { s.blocked = false })
		after(blockedMost)
		require.Len(t, f.taken(), 1)
		after(expireEvery / 2)
		require.Empty(t, f.taken())
	})
}

func TestFailedStatementIsRepeated(t *testing.T) {
	run(t, func(t *testing.T, s *Settlement, f *table, _ *observer.ObservedLogs) {
		f.set(func(s *state) { s.err = errTable })
		s.Wake(contract.EndsRecorded)
		require.Len(t, f.taken(), 1)
		f.set(func(s *state) { s.err = nil })
		after(time.Second)
		require.Len(t, f.taken(), 1)
		after(expireEvery / 2)
		require.Empty(t, f.taken())
	})
}

// A statement compares one batch.
func TestCountersAreComparedTwiceADay(t *testing.T) {
	run(t, func(t *testing.T, _ *Settlement, f *table, log *observer.ObservedLogs) {
		repairs := func() (list []string) {
			for _, sent := range f.taken() {
				if strings.HasPrefix(sent, "repair") {
					list = append(list, sent)
				}
			}
			return list
		}
		f.set(func(s *state) { s.wrong, s.batches = 2, 2 })
		all := []string{"repair 0", "repair 1", "repair 2"}
		after(expireEvery)
		require.Equal(t, all, repairs(), "soon after the start")
		require.Equal(t, int64(2), log.All()[0].ContextMap()["counters"])
		after(repairEvery - time.Second)
		require.Empty(t, repairs())
		after(time.Second)
		require.Equal(t, all, repairs())
	})
}

// A comparison that fails again and again, for example because it takes too long, delays neither ends nor deletions.
func TestRepairThatFailsDelaysNothingElse(t *testing.T) {
	run(t, func(t *testing.T, s *Settlement, f *table, _ *observer.ObservedLogs) {
		f.set(func(s *state) { s.unrepairable, s.old = errTable, 2 })
		after(expireEvery + time.Second)
		require.Equal(t, []string{"count", "repair 0", "expire", "count", "expire"}, f.taken())
		after(expireEvery)
		require.Contains(t, f.taken(), "repair 0")
		f.set(func(s *state) { s.batches = 1 })
		after(2 * expireEvery)
		taken := f.taken()
		require.Contains(t, taken, "repair 0")
		require.Contains(t, taken, "repair 1", "the batch is left out")
	})
}

func TestEndOfANotedJobIsCounted(t *testing.T) {
	finish := func(id dispatcherd.JobID) *contract.FinishRequest {
		return &contract.FinishRequest{Items: []contract.Finish{{ID: id}}}
	}
	run(t, func(t *testing.T, s *Settlement, f *table, _ *observer.ObservedLogs) {
		s.Claimed([]contract.Won{{ID: 1, Counted: true}, {ID: 2}})
		s.Finished(finish(2), &contract.FinishResult{Verdict: contract.OK})
		s.Finished(finish(1), &contract.FinishResult{Verdict: contract.Unknown})
		require.Empty(t, f.taken())
		s.Finished(finish(1), &contract.FinishResult{Verdict: contract.OK})
		require.Len(t, f.taken(), 1)
		s.Finished(finish(1), &contract.FinishResult{Verdict: contract.OK})
		require.Empty(t, f.taken(), "once")
		s.Watched(3)
		s.Finished(finish(3), &contract.FinishResult{Verdict: contract.OK})
		require.Len(t, f.taken(), 1)
	})
}

func TestNotedJobsAreBounded(t *testing.T) {
	s := New(Config{Table: &table{}, Log: zap.NewNop()})
	for id := range dispatcherd.JobID(countedMost + 10) {
		s.Watched(id + 1)
	}
	require.Len(t, s.counted, countedMost)
}
