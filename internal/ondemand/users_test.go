package ondemand

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// tryBegin returns the detail of the problem, or "".
func tryBegin(t *testing.T, s *Service, o Request) string {
	f, err := s.Begin(t.Context(), &o, s.NewBody(o.User))
	if err == nil {
		t.Cleanup(f.Leave)
		return ""
	}
	var p *rest.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, 429, p.Status)
	return p.Detail
}

// flood begins requests of a user until one is rejected.
func flood(t *testing.T, s *Service, next func(n int) Request) (detail string) {
	for n := range 100 {
		if detail = tryBegin(t, s, next(n)); detail != "" {
			return detail
		}
	}
	return ""
}

func TestAsynchronousRequestsOfOneUserDoNotExcludeOthers(t *testing.T) {
	s, _ := newService(t) // 10 shared requests
	require.Equal(
		t,
		"too many shared requests: uid 1 has 9, wants 1 more and may have 9, while all users have 9 of 10: use fewer, or another dispatcher",
		flood(t, s, func(int) Request { return Request{Options: Options{Type: "pdf"}, User: "uid 1", Later: true} }),
	)
	require.Empty(t, tryBegin(t, s, Request{Options: Options{Type: "pdf", Durable: true}, User: "uid 2"}))
}

func TestKeysOfOneUserDoNotExcludeOthers(t *testing.T) {
	s, _ := newService(t) // 10 keys
	require.Contains(t, flood(t, s, func(n int) Request {
		return Request{Options: Options{Type: "pdf", Key: strconv.Itoa(n), CoalesceKey: "c"}, User: "uid 1"}
	}), "too many Idempotency-Keys in use: uid 1 has 9, wants 1 more and may have 9")
	require.Empty(t, tryBegin(t, s, Request{Options: Options{Type: "pdf", Key: "k"}, User: "uid 2"}))
}

func TestBodiesOfOneUserDoNotExcludeOthers(t *testing.T) {
	s, _ := newService(t) // 1 MiB
	hostile, other := s.NewBody("uid 1"), s.NewBody("uid 2")
	for hostile.Add(64<<10) == nil {
		continue
	}
	require.ErrorContains(t, hostile.Add(64<<10), "too many bytes of bodies: uid 1 has ")
	require.NoError(t, other.Add(64<<10))
	hostile.Drop()
	other.Drop()
	require.Zero(t, s.Gauges().Bodies)
}

// A further answer is kept in place of the oldest one of the user that keeps most.
func TestKeptAnswersOfOneUserDoNotReplaceThoseOfOthers(t *testing.T) {
	s, b := newService(t) // 10 shared requests
	end := func(user string, n int) {
		f := begin(t, s, Request{Options: Options{Type: "pdf", Key: strconv.Itoa(n)}, User: user})
		b.caller.Answered(Answer{Kind: Done})
		f.Leave()
	}
	end("uid 2", 0)
	for n := range 100 {
		end("uid 1", n)
	}
	end("uid 2", 1)
	require.Len(t, s.kept, 10)
	for key, kept := range map[string]bool{"uid 2\x000": true, "uid 2\x001": true, "uid 1\x0091": false, "uid 1\x0092": true} {
		require.Equal(t, kept, s.byKey[key] != nil, "%q", key)
	}
}

// A caller that fetches its answer later leaves a caller behind.
func TestCallersOfOneRequestDoNotExcludeOthers(t *testing.T) {
	for _, later := range []bool{false, true} {
		s, _ := newService(t) // four times as many callers as requests
		require.Regexp(t, "^too many callers of shared requests: uid 1 has 3[56], wants 1 more and may have 35",
			flood(t, s, func(int) Request {
				return Request{Options: Options{Type: "pdf", CoalesceKey: "c"}, User: "uid 1", Later: later}
			}))
		require.Empty(t, tryBegin(t, s, Request{Options: Options{Type: "pdf", CoalesceKey: "c"}, User: "uid 2", Later: later}))
	}
}

func TestEventsOfOneUserDoNotReplaceThoseOfOthers(t *testing.T) {
	s, _ := newService(t) // 1 MiB
	s.limits.EventsPerRequest = 1000
	hostile, other := s.NewEvents("uid 1"), s.NewEvents("uid 2")
	for range 100 {
		hostile.Add(Event{Data: make([]byte, 64<<10)})
	}
	other.Add(Event{Data: make([]byte, 64<<10)})
	missed, events, _ := other.Take(0)
	require.Zero(t, missed)
	require.Len(t, events, 1)
	hostile.Clear()
}

func TestKeptBytesOfOneUserDoNotReplaceAnswersOfOthers(t *testing.T) {
	s, b := newService(t) // 1 MiB
	end := func(user string, n, size int) {
		f := begin(t, s, Request{Options: Options{Type: "pdf", Key: strconv.Itoa(n)}, User: user})
		b.caller.Answered(Answer{Kind: Done, Payload: make([]byte, size)})
		f.Leave()
	}
	end("uid 2", 0, 400<<10) // keeps most
	events := s.NewEvents("uid 1")
	for range 100 {
		events.Add(Event{Data: make([]byte, 100<<10)})
	}
	for n := range 5 {
		end("uid 1", n, 100<<10)
	}
	require.NotNil(t, s.byKey["uid 2\x000"])
	require.LessOrEqual(t, s.held.held(), int64(1<<20+200<<10))
	events.Clear()
}
