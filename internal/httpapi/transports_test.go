package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// onEachTransport runs a test for callers that use HTTP and for callers that
// use frames.
func onEachTransport(t *testing.T, change func(*Config), test func(t *testing.T, c *client.Client, h *Handler, f *fake)) {
	t.Run("http", func(t *testing.T) {
		address, h, f, _ := served(t, change)
		test(t, newClient(t, client.Options{URL: "http://" + address}), h, f)
	})
	t.Run("frames", func(t *testing.T) {
		h, f, _ := testHandler(t, change)
		test(t, newClient(t, client.Options{Socket: servedUnix(t, h)}), h, f)
	})
}

func newClient(t *testing.T, o client.Options) *client.Client {
	c, err := client.New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// servedUnix serves a handler on a Unix socket until the test ends.
func servedUnix(t *testing.T, h *Handler) (path string) {
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx, l, false, h, log.New(io.Discard, "", 0)) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.Zero(t, h.Gauges().FrameSessions)
		require.Zero(t, h.Gauges().FrameRequests)
		require.Eventually(t, func() bool { return h.Gauges().Connections == 0 }, 30*time.Second, time.Millisecond)
	})
	return path
}

// outcome is what a call returned.
type outcome struct {
	result json.RawMessage
	err    error
}

func do(ctx context.Context, c *client.Client, r client.Request) <-chan outcome {
	got := make(chan outcome, 1)
	go func() {
		result, err := c.Do(ctx, r)
		got <- outcome{result, err}
	}()
	return got
}

// problemIn requires that a call failed with a problem of that kind.
func problemIn(t *testing.T, k rest.Kind, got outcome) *client.Problem {
	t.Helper()
	var p *client.Problem
	require.ErrorAs(t, got.err, &p)
	require.Equal(t, rest.Namespace+k.Name, p.Type, "%v", got.err)
	require.Equal(t, k.Status, p.Status)
	require.Equal(t, k.Title, p.Title)
	return p
}

func TestEachAnswerReachesTheCaller(t *testing.T) {
	onEachTransport(t, nil, func(t *testing.T, c *client.Client, _ *Handler, f *fake) {
		for _, want := range []string{`{"pages": 3}`, `null`, `"` + strings.Repeat("x", 900_000) + `"`} {
			got := do(t.Context(), c, client.Request{Type: "pdf", Payload: map[string]int{"page": 1}, Priority: 3})
			f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(want), Worker: "w1"})
			answer := <-got
			require.NoError(t, answer.err)
			require.Equal(t, want, string(answer.result))
		}
		for kind, want := range map[ondemand.AnswerKind]rest.Kind{
			ondemand.Failed: rest.JobFailed, ondemand.Late: rest.DeadlinePassed, ondemand.Unsupported: rest.NoSlot,
			ondemand.Busy: rest.QueueFull, ondemand.Stopping: rest.Stopping, ondemand.Cancelled: rest.JobCancelled,
		} {
			got := do(t.Context(), c, client.Request{Type: "pdf"})
			f.answer(<-f.submitted, ondemand.Answer{Kind: kind, Reason: "because"})
			p := problemIn(t, want, <-got)
			require.Contains(t, p.Detail, "because")
			retry := kind == ondemand.Busy || kind == ondemand.Stopping
			require.Equal(t, retry, p.RetryAfter() == time.Second)
		}
	})
}

func TestInvalidRequestIsRejectedOnEachTransport(t *testing.T) {
	onEachTransport(t, func(c *Config) { c.MaxPayload = 1000 }, func(t *testing.T, c *client.Client, _ *Handler, f *fake) {
		for _, r := range []client.Request{
			{}, {Type: "a\n"}, {Type: "pdf", Priority: 11}, {Type: "pdf", Timeout: 2 * time.Hour}, {Type: "pdf", WaitForWorker: -time.Second},
			{Type: "pdf", Timeout: time.Microsecond}, {Type: "pdf", Expected: time.Microsecond},
			{Type: "pdf", Expected: -time.Second}, {Type: "pdf", Expected: 600 * time.Hour},
			{Type: "pdf", CoalesceKey: strings.Repeat("k", 257)}, {Type: "pdf", IdempotencyKey: strings.Repeat("k", 257)},
		} {
			problemIn(t, rest.InvalidRequest, <-do(t.Context(), c, r))
		}
		for _, payload := range []string{`{"x":"\u0000"}`, `"\ud800"`, strings.Repeat("[", 200) + strings.Repeat("]", 200), "1e12345"} {
			problemIn(t, rest.InvalidJob, <-do(t.Context(), c, client.Request{Type: "pdf", Payload: json.RawMessage(payload)}))
		}
		problemIn(t, rest.TooLarge, <-do(t.Context(), c, client.Request{Type: "pdf", Payload: strings.Repeat("x", 2000)}))
		problemIn(t, rest.TooLarge, <-do(t.Context(), c, client.Request{Type: "pdf", Payload: strings.Repeat("x", 2<<20)}))
		require.Empty(t, f.submitted)
		got := do(t.Context(), c, client.Request{Type: "pdf"}) // the connection is still usable
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
		require.NoError(t, (<-got).err)
	})
}

func TestIdempotencyKeyExecutesOnceOnEachTransport(t *testing.T) {
	onEachTransport(t, nil, func(t *testing.T, c *client.Client, h *Handler, f *fake) {
		r := client.Request{Type: "pdf", IdempotencyKey: "k"}
		first := do(t.Context(), c, r)
		id := <-f.submitted
		second := do(t.Context(), c, r)
		require.Eventually(t, func() bool { return h.Gauges().Followers == 2 }, 30*time.Second, time.Millisecond)
		f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"once"`)})
		for _, got := range []outcome{<-first, <-second, <-do(t.Context(), c, r)} {
			require.NoError(t, got.err)
			require.Equal(t, `"once"`, string(got.result))
		}
		r.Priority = 1
		problemIn(t, rest.KeyReused, <-do(t.Context(), c, r))
		require.Empty(t, f.submitted)
	})
}

func TestCoalescedCallersShareOneExecutionOnEachTransport(t *testing.T) {
	onEachTransport(t, nil, func(t *testing.T, c *client.Client, h *Handler, f *fake) {
		r := client.Request{Type: "pdf", CoalesceKey: "c", Timeout: time.Minute}
		leaving, leave := context.WithCancel(t.Context())
		first := do(leaving, c, r)
		id := <-f.submitted
		second := do(t.Context(), c, r)
		require.Eventually(t, func() bool { return h.Gauges().Followers == 2 }, 30*time.Second, time.Millisecond)
		leave()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		require.Eventually(t, func() bool { return h.Gauges().Followers == 1 }, 30*time.Second, time.Millisecond)
		require.Empty(t, f.abandoned, "another caller waits")
		f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`1`)})
		require.NoError(t, (<-second).err)
		require.Empty(t, f.submitted)
	})
}

func TestCancelledContextCancelsTheRequestOnEachTransport(t *testing.T) {
	onEachTransport(t, nil, func(t *testing.T, c *client.Client, h *Handler, f *fake) {
		for _, r := range []client.Request{{Type: "pdf"}, {Type: "pdf", CoalesceKey: "c"}} {
			ctx, cancel := context.WithCancel(t.Context())
			got := do(ctx, c, r)
			id := <-f.submitted
			cancel()
			require.ErrorIs(t, (<-got).err, context.Canceled)
			require.Equal(t, id, <-f.abandoned)
		}
		enough := errors.New("enough")
		go func() { f.withCaller(<-f.submitted, func(c ondemand.Caller) { c.Started(1, "w") }) }()
		_, err := c.Stream(t.Context(), client.Request{Type: "pdf"}, func(client.Event) error { return enough })
		require.ErrorIs(t, err, enough)
		<-f.abandoned
		require.Eventually(t, func() bool { return h.Gauges().Followers == 0 }, 30*time.Second, time.Millisecond)
	})
}

func TestCallersDeadlineEndsASharedRequestOnEachTransport(t *testing.T) {
	onEachTransport(t, nil, func(t *testing.T, c *client.Client, _ *Handler, f *fake) {
		got := do(t.Context(), c, client.Request{Type: "pdf", CoalesceKey: "c", Timeout: 20 * time.Millisecond})
		id := <-f.submitted
		require.Equal(t, "the request was not done in time; it had not started", problemIn(t, rest.DeadlinePassed, <-got).Detail)
		require.Equal(t, id, <-f.abandoned)
		go func() { f.withCaller(<-f.submitted, func(c ondemand.Caller) { c.Started(1, "w") }) }()
		got = do(t.Context(), c, client.Request{Type: "pdf", CoalesceKey: "c", Timeout: 500 * time.Millisecond})
		require.Equal(t, "the request was not done in time; it had started", problemIn(t, rest.DeadlinePassed, <-got).Detail)
		<-f.abandoned
	})
}

func TestEventsArriveInOrderOnEachTransport(t *testing.T) {
	onEachTransport(t, nil, func(t *testing.T, c *client.Client, _ *Handler, f *fake) {
		go func() {
			id := <-f.submitted
			f.withCaller(id, func(c ondemand.Caller) {
				c.Started(7, "w\"1")
				c.Reported(ondemand.Event{Name: "progress", Attempt: 1, Data: []byte(`{"done":1,"total":3}`)})
				c.Reported(ondemand.Event{Name: "partial", Attempt: 1, Data: []byte(`"line"`)})
			})
			f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`[1]`)})
		}()
		var seen []string
		result, err := c.Stream(t.Context(), client.Request{Type: "pdf"}, func(e client.Event) error {
			seen = append(seen, e.ID+" "+e.Name+" "+string(e.Data))
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, `[1]`, string(result))
		require.Equal(t, []string{
			`0 queued {"rank":2,"waiting":5}`, `1 started {"slot":7,"worker":"w\"1"}`, `2 progress {"done":1,"total":3}`, `3 partial "line"`,
		}, seen)
		f.refuse(ondemand.ErrStopping)
		_, err = c.Stream(t.Context(), client.Request{Type: "pdf"}, func(client.Event) error { return nil })
		problemIn(t, rest.Stopping, outcome{err: err})
	})
}

func TestDroppedEventsCauseAGapOnEachTransport(t *testing.T) {
	onEachTransport(t, func(c *Config) { c.KeepBytes = 1000 }, func(t *testing.T, c *client.Client, _ *Handler, f *fake) {
		go func() {
			id := <-f.submitted
			f.withCaller(id, func(c ondemand.Caller) {
				for range 100 {
					c.Reported(ondemand.Event{Name: "partial", Attempt: 1, Data: []byte(`"` + strings.Repeat("x", 2000) + `"`)})
				}
			})
			f.answer(id, ondemand.Answer{Kind: ondemand.Done})
		}()
		gaps := 0
		_, err := c.Stream(t.Context(), client.Request{Type: "pdf"}, func(e client.Event) error {
			if e.Name == "gap" {
				gaps++
			}
			return nil
		})
		require.NoError(t, err)
		require.Positive(t, gaps)
	})
}

func TestBodiesAreBoundedOnEachTransport(t *testing.T) {
	onEachTransport(
		t,
		func(c *Config) { c.MaxPayload, c.MaxBodies = 10_000, 10_000 },
		func(t *testing.T, c *client.Client, h *Handler, f *fake) {
			r := client.Request{Type: "pdf", Payload: strings.Repeat("x", 9000)}
			first, second := do(t.Context(), c, r), do(t.Context(), c, r)
			one, two := <-f.submitted, <-f.submitted
			p := problemIn(t, rest.QueueFull, <-do(t.Context(), c, r))
			require.Positive(t, p.RetryAfter())
			f.answer(one, ondemand.Answer{Kind: ondemand.Done})
			f.answer(two, ondemand.Answer{Kind: ondemand.Done})
			require.NoError(t, (<-first).err)
			require.NoError(t, (<-second).err)
			require.Eventually(t, func() bool { return h.Gauges().Bodies == 0 }, 30*time.Second, time.Millisecond)
		},
	)
}

func TestDurableRequestIsARowOnEachTransport(t *testing.T) {
	rows := rowHandler
	test := func(t *testing.T, c *client.Client, f *rowBackend) {
		got := do(t.Context(), c, client.Request{Type: "pdf", Durable: true})
		f.answer(-<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`1`)})
		require.NoError(t, (<-got).err)
		got = do(t.Context(), c, client.Request{Type: "pdf", Durable: true})
		id := <-f.submitted
		f.answer(-id, ondemand.Answer{Kind: ondemand.Failed, Reason: "torn"})
		require.Equal(t, -id, problemIn(t, rest.JobFailed, <-got).Job)
		got = do(t.Context(), c, client.Request{Type: "pdf", Durable: true, Keys: "a b*2", Timeout: 20 * time.Millisecond})
		id = <-f.submitted
		late := problemIn(t, rest.DeadlinePassed, <-got)
		require.Equal(t, -id, late.Job)
		require.Contains(t, late.Detail, "this dispatcher had not started it", "another one may have")
		require.Contains(t, late.Detail, "; it needs the keys a b*2: 'dispatcherd key show KEY' says")
		require.Equal(t, -id, <-f.abandons)
	}
	t.Run("http", func(t *testing.T) {
		h, f := rows(t)
		test(t, newClient(t, client.Options{URL: "http://" + opened(t, h, serveAll)}), f)
	})
	t.Run("frames", func(t *testing.T) {
		h, f := rows(t)
		test(t, newClient(t, client.Options{Socket: servedUnix(t, h)}), f)
	})
}

func TestManyConcurrentRequestsGetTheirOwnAnswers(t *testing.T) {
	onEachTransport(t, nil, func(t *testing.T, c *client.Client, _ *Handler, f *fake) {
		var all sync.WaitGroup
		const callers, each = 20, 20
		go func() {
			for range callers * each {
				id := <-f.submitted
				f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: fmt.Appendf(nil, "%d", -id)})
			}
		}()
		var mu sync.Mutex
		seen := map[string]bool{}
		for range callers {
			all.Go(func() {
				for range each {
					result, err := c.Do(t.Context(), client.Request{Type: "pdf"})
					if err != nil {
						t.Errorf("%v", err)
						return
					}
					mu.Lock()
					seen[string(result)] = true
					mu.Unlock()
				}
			})
		}
		all.Wait()
		require.Len(t, seen, callers*each)
	})
}

// dialFrames connects as a caller with frames.
func dialFrames(t *testing.T, path string) *workerproto.CallerConn {
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	c, err := workerproto.ConnectCaller(t.Context(), conn, "test", "")
	require.NoError(t, err)
	t.Cleanup(c.Abort)
	return c
}

func TestClosedConnectionCancelsItsRequests(t *testing.T) {
	h, f, seen := testHandler(t, nil)
	c := dialFrames(t, servedUnix(t, h))
	const requests = 100
	for id := range int64(requests) {
		require.True(t, c.Send(&workerproto.Request{ID: id + 1, Type: "pdf", Events: id%2 > 0}))
	}
	for range requests {
		<-f.submitted
	}
	require.Equal(t, requests, h.Gauges().FrameRequests)
	c.Abort()
	for range requests {
		<-f.abandoned
	}
	require.Eventually(
		t,
		func() bool { return h.Gauges().FrameSessions == 0 && seen.responses.Load() == requests },
		30*time.Second,
		time.Millisecond,
	)
}

func TestOpenRequestsOfAConnectionAreBounded(t *testing.T) {
	h, f, seen := testHandler(t, func(c *Config) { c.OpenRequests = 2 })
	c := dialFrames(t, servedUnix(t, h))
	require.Equal(t, 2, c.Welcome().Limits.MaxRequests)
	for id := range int64(3) {
		require.True(t, c.Send(&workerproto.Request{ID: id + 1, Type: "pdf"}))
	}
	frames, err := c.Receive()
	require.NoError(t, err)
	refused := frames[0].(*workerproto.Answer)
	require.EqualValues(t, 3, refused.ID)
	require.Equal(t, rest.QueueFull.Name, refused.Code)
	require.Equal(t, time.Second, refused.RetryAfter)
	require.Equal(t, 1, seen.hits(BoundOpenRequests))
	require.True(t, c.Send(&workerproto.Request{ID: 1, Type: "pdf"}))
	frames, err = c.Receive()
	require.NoError(t, err)
	require.Equal(t, workerproto.DuplicateID, frames[0].(*workerproto.Error).Code)
	<-f.submitted
	<-f.submitted
	require.True(t, c.Send(&workerproto.CancelRequest{ID: 1}))
	frames, err = c.Receive()
	require.NoError(t, err)
	require.Equal(t, rest.JobCancelled.Name, frames[0].(*workerproto.Answer).Code)
	<-f.abandoned
}

func TestCallerThatDoesNotReadLosesItsSession(t *testing.T) {
	h, f, seen := testHandler(t, func(c *Config) { c.OpenRequests = 100 })
	c := dialFrames(t, servedUnix(t, h))
	require.True(t, c.Send(&workerproto.Request{ID: 1, Type: "pdf", Events: true}))
	id := <-f.submitted
	big := []byte(`"` + strings.Repeat("x", 100_000) + `"`)
	for left := 100_000; ; left-- {
		require.Positive(t, left)
		f.withCaller(id, func(c ondemand.Caller) { c.Reported(ondemand.Event{Name: "partial", Attempt: 1, Data: big}) })
		select {
		case <-f.abandoned:
			require.Equal(t, 1, seen.hits(BoundSlowReader))
			return
		case <-time.After(100 * time.Microsecond):
		}
	}
}

func TestHTTPAndFramesShareASocket(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	path := servedUnix(t, h)
	frames := newClient(t, client.Options{Socket: path})
	got := do(t.Context(), frames, client.Request{Type: "pdf"})
	id := <-f.submitted
	status, err := frames.Cancel(t.Context(), 17) // over HTTP
	require.NoError(t, err)
	require.EqualValues(t, "running", status)
	require.Equal(t, 2, h.Gauges().Connections)
	f.answer(id, ondemand.Answer{Kind: ondemand.Done})
	require.NoError(t, (<-got).err)
	silent, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return h.Gauges().Connections == 3 }, 30*time.Second, time.Millisecond)
	require.NoError(t, silent.Close())
	require.Eventually(t, func() bool { return h.Gauges().Connections == 2 }, 30*time.Second, time.Millisecond)
}

func TestClientReconnectsAfterTheServerStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c := newClient(t, client.Options{Socket: path})
	for range 3 {
		h, f, _ := testHandler(t, nil)
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Serve(ctx, l, false, h, log.New(io.Discard, "", 0)) }()
		require.Eventually(t, func() bool {
			got := do(t.Context(), c, client.Request{Type: "pdf"})
			select {
			case id := <-f.submitted:
				f.answer(id, ondemand.Answer{Kind: ondemand.Done})
				return (<-got).err == nil
			case answer := <-got:
				return answer.err == nil
			}
		}, 30*time.Second, time.Millisecond)
		got := do(t.Context(), c, client.Request{Type: "pdf"})
		id := <-f.submitted
		stop()
		require.ErrorIs(t, (<-got).err, client.ErrUnknownOutcome)
		require.Equal(t, id, <-f.abandoned)
		require.NoError(t, <-ended)
	}
}
