package actor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// testShell replaces Postgres and the workers of a running Actor. Like the
// daemon, it answers statements in another goroutine, so the loop never waits.
type testShell struct {
	actor *Actor
	table *table
	sent  chan effect.Effect
	said  []string // accessed only by the loop
	queue chan effect.Effect
}

func startLoop(t *testing.T, configure func(*Config)) *testShell {
	t.Helper()
	cfg := DefaultConfig()
	if configure != nil {
		configure(&cfg)
	}
	s := &testShell{table: newTable(), sent: make(chan effect.Effect, 1000), queue: make(chan effect.Effect, 100)}
	s.actor = NewActor(New(cfg), nil)
	s.actor.Start(performerFunc(s.perform))
	go s.answer()
	return s
}

type performerFunc func([]effect.Effect)

func (f performerFunc) Perform(fx []effect.Effect) { f(fx) }

func (s *testShell) perform(fx []effect.Effect) {
	for _, e := range fx {
		s.said = append(s.said, nameOf(e))
		e = keptOne(e)
		switch e := e.(type) {
		case *effect.Fetch, *effect.Claim, *effect.Resolve, *effect.Finish, *effect.SetGate:
			s.queue <- e
		default:
			s.sent <- e
		}
	}
}

func (s *testShell) answer() {
	for e := range s.queue {
		switch e := e.(type) {
		case *effect.Fetch:
			s.actor.Result(Fetched{Request: e.Request, Result: s.table.fetch(e.Request)})
		case *effect.Claim:
			s.actor.Result(Claimed{Request: e.Request, Result: s.table.claim(1, e.Request)})
		case *effect.Finish:
			s.actor.Result(Finished{Request: e.Request, Result: s.table.finish(1, e.Request)})
		case *effect.SetGate:
			s.actor.Result(GateSet{Subscribed: e.Subscribed})
		}
	}
}

// stop ends the loop and then the goroutine that answers its statements.
func (s *testShell) stop() {
	s.actor.Stop()
	close(s.queue)
}

func pdfSlot(id dispatcherd.SlotID) Registered {
	return Registered{Session: dispatcherd.SessionID(id), Worker: "w", Slots: []dispatcherd.Slot{{ID: id, Types: []string{"pdf"}}}}
}

func TestLoopRunsAJobFromFetchToFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startLoop(t, nil)
		defer s.stop()
		s.table.insert(claimfake.Row{ID: 1, Type: "pdf", RunAt: s.table.now})
		s.actor.Order(pdfSlot(1))
		e := (<-s.sent).(*effect.Send)
		require.Equal(t, dispatcherd.JobID(1), e.Job)
		s.actor.Order(Released{Session: 1, Results: []Result{{Job: 1, Attempt: e.Attempt, OK: true}}})
		synctest.Wait()
		require.Equal(t, dispatcherd.Done, s.table.Row(1).Status)
		s.actor.Ask(func(c *Core) { require.True(t, c.Idle()) })
	})
}

// A worker that reports a result and disconnects has finished its job. If the
// end of its session were handled before the report, the job would run again.
func TestReportsOfASessionAreHandledBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startLoop(t, nil)
		defer s.stop()
		for i := range 200 {
			id := dispatcherd.JobID(i + 1)
			s.actor.Ask(func(*Core) { s.table.insert(claimfake.Row{ID: id, Type: "pdf", RunAt: s.table.now}) })
			s.actor.Order(pdfSlot(dispatcherd.SlotID(id)))
			s.actor.Notify()
			e := (<-s.sent).(*effect.Send)
			s.actor.Order(Released{Session: e.Session, Results: []Result{{Job: e.Job, Attempt: e.Attempt, OK: true}}})
			s.actor.Order(Unregistered{Session: e.Session})
			synctest.Wait()
		}
		s.actor.Ask(func(c *Core) {
			require.Zero(t, c.Stats().Crashed)
			require.Len(t, s.table.Rows(), 200)
			for _, r := range s.table.Rows() {
				require.Equal(t, dispatcherd.Done, r.Status)
			}
		})
	})
}

func TestPollFindsRowsWithoutNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startLoop(t, func(c *Config) { c.Poll = time.Minute })
		defer s.stop()
		s.actor.Order(pdfSlot(1))
		synctest.Wait()
		s.actor.Ask(func(*Core) { s.table.insert(claimfake.Row{ID: 1, Type: "pdf", RunAt: s.table.now}) })
		asked := time.Now()
		require.IsType(t, &effect.Send{}, <-s.sent)
		require.LessOrEqual(t, time.Since(asked), time.Minute+time.Second)
	})
}

func TestLateRequestIsAnsweredAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startLoop(t, nil)
		defer s.stop()
		began := time.Now()
		s.actor.Request(Requested{Job: -1, Type: "pdf", Deadline: 1500 * time.Millisecond, Wait: true})
		e := (<-s.sent).(*effect.Answer)
		require.Equal(t, effect.AnswerLate, e.Kind)
		require.InDelta(t, 1500, time.Since(began).Milliseconds(), 2)
	})
}

// Notifications are hints. If one is unread, further ones are merged. Sending a
// notification never blocks, even after the end of the loop.
func TestNotificationsNeverBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startLoop(t, nil)
		for range 10_000 {
			s.actor.Notify()
		}
		s.stop()
		for range 10_000 {
			s.actor.Notify()
		}
	})
}

func TestNoCallBlocksOnAnEndedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startLoop(t, nil)
		s.stop()
		s.actor.Order(pdfSlot(1))
		s.actor.Order(Unregistered{})
		s.actor.Order(Withdrew{})
		s.actor.Order(Released{})
		s.actor.Request(Requested{Job: -1})
		s.actor.Order(Abandoned{})
		s.actor.Order(Drained{})
		s.actor.Result(GateSet{})
		require.False(t, s.actor.Ask(func(*Core) { t.Error("request to a loop that has ended") }))
		s.actor.Stop()
	})
}

// An idle loop wakes only for its polls.
func TestIdleLoopWakesForPollsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startLoop(t, nil)
		defer s.stop()
		s.actor.Order(pdfSlot(1))
		time.Sleep(time.Minute) // waits until the start is complete
		before := s.actor.Load().Steps
		time.Sleep(time.Hour)
		steps := s.actor.Load().Steps - before
		require.LessOrEqual(t, steps, int64(2*3600+10), "each poll has two events: the tick and the answer of the fetch")
		require.GreaterOrEqual(t, steps, int64(2*3600-10))
	})
}

func TestObserverSeesEveryStepBeforeItsEffectsArePerformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []Event
		var last effect.Effect
		performed := 0
		performer := performerFunc(func([]effect.Effect) {
			performed++
			require.Len(t, events, performed)
		})
		a := NewActor(New(DefaultConfig()), func(_ *Core, _ timing.Instant, ev Event, fx []effect.Effect) {
			events = append(events, ev)
			if len(fx) > 0 {
				last = fx[len(fx)-1]
			}
		})
		a.Start(performer)
		a.Request(Requested{Job: -1, Type: "unknown"})
		a.Stop()
		require.NotEmpty(t, events)
		require.Equal(t, len(events), performed)
		require.IsType(t, Requested{}, events[len(events)-1])
		require.IsType(t, &effect.Answer{}, last)
	})
}
