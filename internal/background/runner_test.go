package background

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// notes are what a service has done. A service whose pause ends does not synchronise with the test, so the notes do.
type notes[T any] struct {
	mu  sync.Mutex
	all []T
}

func (n *notes[T]) add(note T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, note)
}

func (n *notes[T]) list() []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

// noted is an observer that notes the outcomes.
type noted struct{ notes[Outcome] }

func (n *noted) Stepped(_ string, _ time.Duration, o Outcome, _ error) { n.add(o) }

// runService runs a service for a test in a synctest bubble. end stops it.
func runService(t *testing.T, s Service) (r *Runner, o *noted, end func()) {
	o = &noted{}
	s.Name, s.Topics = "test", topic
	r = New(o, s)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	return r, o, func() { stop(); <-done }
}

func TestRunnerRepeatsStepsAndMergesTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps notes[time.Duration]
		begun := time.Now()
		r, o, end := runService(t, Service{Rest: time.Second, Step: func(context.Context, Now) (time.Duration, error) {
			steps.add(time.Since(begun))
			return 10 * time.Second, nil
		}})
		time.Sleep(15 * time.Second)
		synctest.Wait()
		for range 100 {
			r.Wake(topic | other)
		}
		time.Sleep(time.Second / 2)
		r.Wake(topic)
		r.Wake(other)
		synctest.Wait()
		require.Equal(t, []time.Duration{0, 10 * time.Second, 15 * time.Second}, steps.list())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 16*time.Second, steps.list()[3])
		end()
		require.Equal(t, []Outcome{Succeeded, Succeeded, Succeeded, Succeeded}, o.list())
	})
}

func TestLossOfTheRoleCancelsTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log notes[string]
		r, o, end := runService(t, Service{Controller: true, Reset: func() { log.add("reset") },
			Step: func(ctx context.Context, now Now) (time.Duration, error) {
				log.add("step")
				<-ctx.Done()
				time.Sleep(time.Second) // the answer of Postgres is late
				log.add("returned")
				return 0, ctx.Err()
			}})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, log.list(), "another dispatcher leads")
		beat := func(term int64) { r.Beat(Beat{Term: term, Clock: time.Now(), Read: time.Now()}) }
		beat(7)
		synctest.Wait()
		beat(8) // lost and won again between two heartbeats
		synctest.Wait()
		require.Equal(t, []string{"reset", "step"}, log.list())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"reset", "step", "returned", "reset", "step"}, log.list())
		require.Equal(t, []Outcome{Discontinued}, o.list())
		end()
		require.Equal(t, []Outcome{Discontinued}, o.list(), "the end of the daemon is no failure")
	})
}

func TestStopDuringAPauseAfterAFailureReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, o, end := runService(t, Service{Step: func(context.Context, Now) (time.Duration, error) { return 0, errFailed }})
		synctest.Wait()
		begun := time.Now()
		end()
		require.Zero(t, time.Since(begun))
		require.Equal(t, []Outcome{Failed}, o.list())
	})
}

func TestBetweenRunsBetweenTwoSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inStep := false
		r, _, end := runService(t, Service{Controller: true, Step: func(context.Context, Now) (time.Duration, error) {
			inStep = true
			time.Sleep(time.Second)
			inStep = false
			return time.Minute, nil
		}})
		called := func() { require.False(t, inStep) }
		require.False(t, r.Between(t.Context(), "test", called), "another dispatcher leads")
		require.False(t, r.Between(t.Context(), "unknown", called))
		r.Beat(Beat{Term: 1, Clock: time.Now(), Read: time.Now()})
		synctest.Wait()
		require.False(t, r.Between(t.Context(), "test", called), "the first step of the term")
		time.Sleep(time.Second)
		r.Wake(topic)
		synctest.Wait()
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.False(t, r.Between(brief, "test", called))
		require.True(t, r.Between(t.Context(), "test", called))
		end()
	})
}
