package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// oneMiB bounds the bytes of bodies and unread answers. One user may hold 7/8 of it.
func oneMiB(c *Config) { c.MaxPayload, c.MaxBodies = 10_000, 1<<20 }

// share is how much one user may hold of oneMiB. The first bytes of each connection do not count.
const share = 7 << 20 / 8

// connectCaller connects a caller that uses frames. It reads only what the test receives.
func connectCaller(t *testing.T, path string) *workerproto.CallerConn {
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.UnixConn).SetReadBuffer(4096))
	c, err := workerproto.ConnectCaller(t.Context(), conn, "test", "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A result of 100 kB, which a socket does not buffer many times.
var big = []byte(`"` + strings.Repeat("x", 100_000) + `"`)

func TestAnswersThatAUserDoesNotReadAreBoundedInBytes(t *testing.T) {
	h, f, seen := testHandler(t, oneMiB)
	c := connectCaller(t, servedUnix(t, h))
	const requests = 40
	for n := range requests {
		require.True(t, c.Send(&workerproto.Request{ID: int64(n + 1), Type: "pdf"}))
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: big})
		require.LessOrEqual(t, h.Gauges().Bodies, int64(share))
	}
	require.Positive(t, seen.hits(ondemand.BoundBodies))
	other := post(t.Context(), h, `{"type":"pdf"}`) // of a user without a name
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: big})
	require.Equal(t, http.StatusOK, (<-other).Code)

	results, refusals := 0, 0
	for results+refusals < requests {
		frames, err := c.Receive()
		require.NoError(t, err, "the session continues")
		for _, frame := range frames {
			a := frame.(*workerproto.Answer)
			if a.Code == "" {
				results++
				continue
			}
			require.Equal(t, "queue-full", a.Code)
			require.Regexp(t, `^too many bytes of bodies: uid \d+ has \d+, wants \d+ more and may have \d+`, a.Message)
			require.Equal(t, time.Second, a.RetryAfter)
			refusals++
		}
	}
	require.Positive(t, results)
	require.Positive(t, refusals)
	require.Eventually(t, func() bool { return h.Gauges().Bodies == 0 }, 30*time.Second, time.Millisecond)
	require.True(t, c.Send(&workerproto.Request{ID: 1, Type: "pdf"}))
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: big})
	frames, err := c.Receive()
	require.NoError(t, err)
	require.Empty(t, frames[0].(*workerproto.Answer).Code, "there is room again")
}

// The caller learns how many events are missing, before the next event or the answer.
func TestEventsThatAUserDoesNotReadAreBoundedInBytes(t *testing.T) {
	h, f, seen := testHandler(t, oneMiB)
	c := connectCaller(t, servedUnix(t, h))
	const events = 40
	require.True(t, c.Send(&workerproto.Request{ID: 1, Type: "pdf", Events: true}))
	id := <-f.submitted
	for range events {
		f.withCaller(id, func(caller ondemand.Caller) { caller.Reported(ondemand.Event{Name: "partial", Data: big}) })
	}
	require.Eventually(t, func() bool { return seen.hits(ondemand.BoundBodies) > 0 }, 30*time.Second, time.Millisecond)
	require.LessOrEqual(t, h.Gauges().Bodies, int64(share))
	f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: []byte("1")})
	got, missed := 0, 0
	for ended := false; !ended; {
		frames, err := c.Receive()
		require.NoError(t, err, "the session continues")
		for _, frame := range frames {
			switch frame := frame.(type) {
			case *workerproto.RequestPartial:
				got++
			case *workerproto.Gap:
				missed += frame.Missed
			case *workerproto.Answer:
				ended = true
			}
		}
	}
	require.Equal(t, events, got+missed)
	require.Positive(t, got)
	require.Positive(t, missed)
}

// slowWriter is a response whose caller does not read until the test says so.
type slowWriter struct {
	*httptest.ResponseRecorder

	began, goOn chan bool
}

// Write implements http.ResponseWriter.
func (w slowWriter) Write(b []byte) (int, error) {
	w.began <- true
	<-w.goOn
	return w.ResponseRecorder.Write(b)
}

func TestResponsesThatAUserDoesNotReadAreBoundedInBytes(t *testing.T) {
	h, f, seen := testHandler(t, oneMiB)
	request := func(user string) *http.Request {
		ctx := quota.WithUser(context.Background(), user)
		return httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/requests", strings.NewReader(`{"type":"pdf"}`))
	}
	answer := func(size int) {
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"` + strings.Repeat("x", size) + `"`)})
	}
	slow := slowWriter{httptest.NewRecorder(), make(chan bool, 1), make(chan bool)}
	served := make(chan bool)
	go func() {
		h.ServeHTTP(slow, request("uid 1"))
		close(served)
	}()
	answer(600_000)
	<-slow.began
	call := func(user string, size int) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		go answer(size)
		h.ServeHTTP(rec, request(user))
		return rec
	}
	refused := call("uid 1", 600_000)
	require.Equal(t, http.StatusTooManyRequests, refused.Code)
	require.Contains(t, refused.Body.String(), `"detail":"too many bytes of bodies: uid 1 has `)
	require.Equal(t, "application/problem+json", refused.Header().Get("Content-Type"))
	require.Empty(t, refused.Header().Get("Content-Length"), "that of the result")
	require.Equal(t, 1, seen.hits(ondemand.BoundBodies))
	require.Equal(t, http.StatusOK, call("uid 2", 300_000).Code)
	slow.goOn <- true
	<-served
	require.Equal(t, http.StatusOK, slow.Code)
	require.Equal(t, http.StatusOK, call("uid 1", 600_000).Code)
}

func TestResultsOfAFanOutAreBoundedInBytes(t *testing.T) {
	h, f, _ := testHandler(t, oneMiB)
	response := postFanOut(t.Context(), h, `{"type":"pdf","items":[1,2,3]}`)
	for range 2 {
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"` + strings.Repeat("x", 600_000) + `"`)})
	}
	w := <-response
	require.Equal(t, http.StatusMultiStatus, w.Code)
	require.Contains(t, w.Body.String(), `"error":"the result was dropped: too many bytes of bodies: `)
	require.Contains(t, w.Body.String(), `"code":"queue-full"`)
	require.Contains(t, w.Body.String(), `"ok":true`)
}
