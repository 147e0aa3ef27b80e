package ondemand

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// backend keeps the last caller and answers when the test says so.
type backend struct {
	deadline   time.Duration // of the last request
	last       dispatcherd.JobID
	caller     Caller
	submitting func() // called before Submit fails; nil = Submit succeeds
}

func (b *backend) Submit(_ context.Context, r Request, c Caller) (dispatcherd.JobID, error) {
	b.deadline = r.Timeout
	if b.submitting != nil {
		b.submitting()
		return 0, ErrUnavailable
	}
	b.last--
	b.caller = c
	return b.last, nil
}

func (*backend) Abandon(dispatcherd.JobID, Caller)                  {}
func (*backend) NoCapacity(dispatcherd.JobID) (time.Duration, bool) { return time.Second, false }
func (*backend) Offered(string) bool                                { return true }
func (*backend) Offerings(string) []Offering                        { return nil }
func (*backend) Elsewhere(typ string) bool                          { return typ == "elsewhere" }
func (*backend) Rank(dispatcherd.JobID) (Rank, bool)                { return Rank{OfType: 2, Waiting: 5}, true }

func newLimits() Limits {
	return Limits{
		DefaultTimeout:   time.Minute,
		MaxTimeout:       time.Hour,
		MaxBodies:        1 << 20,
		SharedRequests:   10,
		Keys:             10,
		KeepAnswers:      time.Minute,
		KeepBytes:        1 << 20,
		EventsPerRequest: 10,
	}
}

func newService(t *testing.T) (*Service, *backend) {
	b := &backend{}
	s := New(newLimits(), b, func(Bound) {})
	t.Cleanup(func() {
		s.Close()
		g := s.Gauges()
		require.Zero(t, g.Followers)
		require.Zero(t, g.Bytes)
		require.Zero(t, s.running.Held())
		require.Zero(t, s.callers.Held())
		require.Zero(t, s.keys.Held())
		s.mu.Lock()
		defer s.mu.Unlock()
		for len(s.kept) > 0 {
			s.forgetLocked(s.kept[0])
		}
		require.Zero(t, s.keeps.Held())
	})
	return s, b
}

func begin(t *testing.T, s *Service, o Request) *Follower {
	f, err := s.Begin(t.Context(), &o, s.NewBody(""))
	require.NoError(t, err)
	return f
}

func TestForgottenRequestHasNoEntry(t *testing.T) {
	s, b := newService(t)
	f := begin(t, s, Request{Options: Options{Type: "pdf", Key: "k", CoalesceKey: "c"}, Later: true})
	b.caller.Answered(Answer{Kind: Done})
	require.Len(t, s.kept, 1)
	require.Empty(t, s.byCoalesce, "an ended request is not shared")
	f.Cancel()
	f.Leave()
	require.Empty(t, s.kept)
	require.Empty(t, s.byKey)
	require.Empty(t, s.byID)
}

// The end of a request and a caller's deadline may happen at the same time. A caller
// that was answered Late gets the same answer again if the request had started.
func TestLateCallerOfEndedRequestStaysLate(t *testing.T) {
	for _, started := range []bool{true, false} {
		s, b := newService(t)
		o := Request{Options: Options{Type: "pdf", Key: "late"}}
		first := begin(t, s, o)
		late := begin(t, s, o)
		if started {
			b.caller.Started(1, "w")
		}
		b.caller.Answered(Answer{Kind: Unsupported, Reason: "none"})
		first.Leave()
		late.late = true
		late.Leave()
		submitted := b.last
		again := begin(t, s, o)
		if started {
			require.Equal(t, submitted, b.last, "it is not started again")
			_, a, err := again.Await(t.Context())
			require.NoError(t, err)
			require.Equal(t, Late, a.Kind)
			require.Equal(t, "the request was not done in time; it had started", a.Reason)
		} else {
			require.NotEqual(t, submitted, b.last)
			b.caller.Answered(Answer{Kind: Done})
		}
		again.Leave()
	}
}

// endless is a backend whose requests do not end.
type endless struct {
	backend

	last      atomic.Int64
	abandoned func() // called by Abandon; may be nil
}

func (b *endless) Submit(context.Context, Request, Caller) (dispatcherd.JobID, error) {
	return dispatcherd.JobID(b.last.Add(-1)), nil
}

func (b *endless) Abandon(dispatcherd.JobID, Caller) {
	if b.abandoned != nil {
		b.abandoned()
	}
}

func stopping(t *testing.T, err error) {
	t.Helper()
	var p *rest.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, rest.Stopping.Name, p.Name())
}

// Close ends the requests one after the other. A caller that arrives meanwhile joins
// none of the others.
func TestJoinDuringCloseIsRefused(t *testing.T) {
	b := &endless{}
	s := New(newLimits(), b, func(Bound) {})
	keys := []string{"a", "b", "c"}
	followers := make([]*Follower, len(keys))
	for i, key := range keys {
		followers[i] = begin(t, s, Request{Options: Options{Type: "pdf", Key: key}})
	}
	b.abandoned = func() {
		for _, key := range keys {
			_, err := s.Begin(t.Context(), &Request{Options: Options{Type: "pdf", Key: key}}, s.NewBody(""))
			stopping(t, err)
		}
	}
	s.Close()
	for _, f := range followers {
		_, a, err := f.Await(t.Context())
		require.NoError(t, err)
		require.Equal(t, Cancelled, a.Kind)
		f.Leave()
	}
	require.Zero(t, s.Gauges().Followers+s.Gauges().Requests)
}

// The race detector reports a goroutine that starts while Close waits for all.
func TestLateJoinsAndCloseAreConcurrent(t *testing.T) {
	for range 20 {
		limits := newLimits()
		limits.SharedRequests = 1 << 20
		s, joined := New(limits, &endless{}, func(Bound) {}), make(chan bool, 1)
		var callers sync.WaitGroup
		for n := range 4 {
			callers.Go(func() {
				for range 200 { // until it is refused
					f, err := s.Begin(t.Context(), &Request{Options: Options{Type: "pdf", CoalesceKey: strconv.Itoa(n % 2)}, Later: true}, s.NewBody(""))
					if err != nil {
						stopping(t, err)
						return
					}
					f.Leave()
					select {
					case joined <- true:
					default:
					}
				}
			})
		}
		<-joined
		s.Close()
		require.LessOrEqual(t, s.Gauges().Followers, 4, "only callers that did not leave yet")
		callers.Wait()
		require.Zero(t, s.Gauges().Followers+s.Gauges().Requests)
	}
}

func TestRequestWithoutATimeoutGetsTheDefault(t *testing.T) {
	s, b := newService(t)
	for timeout, want := range map[time.Duration]time.Duration{0: time.Minute, time.Second: time.Second} {
		f := begin(t, s, Request{Options: Options{Type: "pdf", Timeout: timeout}})
		require.Equal(t, want, b.deadline)
		b.caller.Answered(Answer{Kind: Done})
		f.Leave()
	}
}

func TestOptionsAreChecked(t *testing.T) {
	s, _ := newService(t)
	const long, negative = 2 * time.Hour, -time.Second
	for _, o := range []Options{
		{}, {Type: "a\n"}, {Type: "pdf", Priority: 11}, {Type: "pdf", Timeout: long}, {Type: "pdf", CapacityWait: negative},
		{Type: "pdf", Key: string(make([]byte, MaxKey+1))}, {Type: "pdf", CoalesceKey: string(make([]byte, MaxKey+1))},
	} {
		var p *rest.Problem
		require.ErrorAs(t, s.Check(&Request{Options: o}), &p)
		require.Equal(t, rest.InvalidRequest.Name, p.Name())
	}
	require.NoError(t, s.Check(&Request{Options: Options{Type: "pdf"}}))
}

// A request is cancelled while it is submitted, and then the submission fails. Callers
// that joined it do not wait until their deadlines.
func TestJoinedCallerOfCancelledAndFailedSubmissionIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newService(t)
		joined := make(chan error, 1)
		b.submitting = func() {
			f := begin(t, s, Request{Options: Options{Type: "pdf", Durable: true, Key: "k"}}) // joins
			go func() {
				_, err := f.Ready(context.Background(), 0)
				f.Leave()
				joined <- err
			}()
			synctest.Wait()
			f.Cancel()
		}
		_, err := s.Begin(t.Context(), &Request{Options: Options{Type: "pdf", Durable: true, Key: "k"}}, s.NewBody(""))
		require.ErrorIs(t, err, ErrUnavailable)
		require.NoError(t, <-joined)
	})
}
