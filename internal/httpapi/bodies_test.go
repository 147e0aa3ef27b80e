package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

// bodyOf is a request of n bytes.
func bodyOf(n int, more string) string {
	const frame = `{"type":"pdf","payload":""}`
	return strings.Replace(frame, `""}`, `"`+strings.Repeat("x", n-len(frame)-len(more))+`"`+more+`}`, 1)
}

// The bodies of all callers are bounded together. A request beyond the bound is
// rejected, and the others continue.
func TestBodiesOfAllCallersAreBounded(t *testing.T) {
	const long, counted = 9000, 9000 - ondemand.FreeBody
	for name, headers := range map[string][]string{
		"waiting":        nil,
		"streaming":      {"Accept", "text/event-stream"},
		"fetching later": {"Prefer", "respond-async"},
		"with keys":      {"Idempotency-Key", "k%d"},
	} {
		t.Run(name, func(t *testing.T) {
			h, f, seen := testHandler(t, func(c *Config) { c.MaxPayload, c.MaxBodies = 10_000, 10_000 })
			ask := func(i int) <-chan *httptest.ResponseRecorder {
				with := make([]string, len(headers))
				for j := range headers {
					with[j] = strings.ReplaceAll(headers[j], "%d", strconv.Itoa(i))
				}
				return post(t.Context(), h, bodyOf(long, ""), with...)
			}
			first := ask(1)
			one := <-f.submitted
			second := ask(2)
			two := <-f.submitted
			require.EqualValues(t, 2*counted, h.Gauges().Bodies)
			require.Equal(t, http.StatusTooManyRequests, (<-ask(3)).Code)
			require.Equal(t, 1, seen.hits(ondemand.BoundBodies))
			require.EqualValues(t, 2*counted, h.Gauges().Bodies, "rejected bodies are not held")
			f.answer(one, ondemand.Answer{Kind: ondemand.Done})
			require.Less(t, (<-first).Code, 300)
			require.EqualValues(t, counted, h.Gauges().Bodies)
			fourth := ask(4)
			four := <-f.submitted
			require.EqualValues(t, 2*counted, h.Gauges().Bodies, "the ended request was dropped")
			f.answer(two, ondemand.Answer{Kind: ondemand.Done})
			f.answer(four, ondemand.Answer{Kind: ondemand.Done})
			require.Less(t, (<-second).Code, 300)
			require.Less(t, (<-fourth).Code, 300)
		})
	}
}

// The body of a caller that joins a shared request is released.
func TestSharedRequestHoldsOneBody(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	first := post(t.Context(), h, bodyOf(9000, ""), "Idempotency-Key", "k")
	id := <-f.submitted
	second := post(t.Context(), h, bodyOf(9000, ""), "Idempotency-Key", "k")
	require.Eventually(
		t,
		func() bool { return h.Gauges().Followers == 2 && h.Gauges().Bodies == 9000-ondemand.FreeBody },
		time.Minute,
		time.Millisecond,
	)
	f.answer(id, ondemand.Answer{Kind: ondemand.Done})
	require.Equal(t, http.StatusOK, (<-first).Code)
	require.Equal(t, http.StatusOK, (<-second).Code)
}

func TestBodyOfARowIsNotHeld(t *testing.T) {
	for _, headers := range [][]string{nil, {"Prefer", "respond-async"}} {
		h, f, _ := testHandler(t, nil)
		answered := post(t.Context(), h, bodyOf(9000, `,"durable":true`), headers...)
		id := <-f.submitted
		require.Eventually(t, func() bool { return h.Gauges().Bodies == 0 }, time.Minute, time.Millisecond)
		f.answer(id, ondemand.Answer{Kind: ondemand.Done})
		require.Less(t, (<-answered).Code, 300)
	}
}

// The bound may be smaller than one body. One body is still accepted.
func TestOneBodyIsAlwaysAccepted(t *testing.T) {
	h, f, _ := testHandler(t, func(c *Config) { c.MaxBodies = 1 })
	answered := post(t.Context(), h, bodyOf(9000, ""))
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
	require.Equal(t, http.StatusOK, (<-answered).Code)
}

// A caller disconnects in the middle of its body. The bytes are released.
func TestIncompleteBodyIsReleased(t *testing.T) {
	address, h, _, _ := served(t, nil)
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	_, err = fmt.Fprintf(conn, "POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Length: 100000\r\n\r\n%s", strings.Repeat("x", 50_000))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return h.Gauges().Bodies == 50_000-ondemand.FreeBody }, time.Minute, time.Millisecond)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return h.Gauges().Bodies == 0 }, time.Minute, time.Millisecond)
}
