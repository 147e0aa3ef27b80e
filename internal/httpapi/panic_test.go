package httpapi

import (
	"bytes"
	"context"
	"log"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// secret is a part of a request.
const secret = "the customer's name"

// breaking is a dispatcher that panics with a part of the request.
type breaking struct {
	*fake

	told atomic.Bool
}

func (b *breaking) Submit(ctx context.Context, r ondemand.Request, c ondemand.Caller) (dispatcherd.JobID, error) {
	if b.told.Load() {
		panic(secret)
	}
	return b.fake.Submit(ctx, r, c)
}

// unspeakableError panics when the writer formats it.
type unspeakableError struct{}

func (unspeakableError) Error() string {
	var nothing []string
	return nothing[len(secret)]
}

func (unspeakableError) Unwrap() error { return rest.NotFound.Refuses("") }

func TestPanicEndsOneConnectionOnly(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*breaking)
		told   string
	}{
		"reader": {func(b *breaking) { b.told.Store(true) }, "panic: a string\n"},
		"writer": {func(b *breaking) { b.refuse(unspeakableError{}) }, "index out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			h, f, seen := testHandler(t, nil)
			b := &breaking{fake: f}
			replaceBackend(h, b)
			address := opened(t, h, serveAll)
			other := connect(t, address)
			other.sendRequests(1)
			id := <-f.submitted
			c.breaks(b)
			broken := connect(t, address)
			broken.sendRequests(3) // the second and third are never served
			broken.requireClosed()
			f.answer(id, ondemand.Answer{Kind: ondemand.Done})
			require.Equal(t, 200, other.readResponse().status)
			require.Eventually(t, func() bool { return h.Gauges().Connections == 1 }, 30*time.Second, time.Millisecond)
			require.EqualValues(t, 1, seen.failures.Load())
			// Both requests that began are counted; the other one is counted after its answer.
			require.Eventually(t, func() bool { return seen.responses.Load() == 2 }, 30*time.Second, time.Millisecond)
			require.ErrorContains(t, seen.failure, c.told)
			require.NotContains(t, seen.failure.Error(), secret)
		})
	}
}

// The log of net/http does not contain the value either.
func TestPanicIsReportedWithoutItsValue(t *testing.T) {
	h, f, seen := testHandler(t, nil)
	b := &breaking{fake: f}
	replaceBackend(h, b)
	b.told.Store(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var text bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx, l, false, h, log.New(&text, "", 0)) }()
	require.Zero(t, exchange(t, l.Addr().String(), "POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Length: 14\r\n\r\n{\"type\":\"pdf\"}"))
	require.Equal(t, 200, exchange(t, l.Addr().String(), livez))
	cancel()
	require.NoError(t, <-ended)
	require.Empty(t, text.String())
	require.EqualValues(t, 1, seen.failures.Load())
	require.ErrorContains(t, seen.failure, "panic: a string\n")
	require.NotContains(t, seen.failure.Error(), secret)
	require.EqualValues(t, 2, seen.responses.Load())
}

// A request that was not submitted is not kept.
func TestPanicRemovesTheSharedRequest(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	b := &breaking{fake: f}
	replaceBackend(h, b)
	b.told.Store(true)
	address := opened(t, h, serveAll)
	require.Zero(
		t,
		exchange(t, address, "POST /v1/requests HTTP/1.1\r\nHost: d\r\nPrefer: respond-async\r\nContent-Length: 9000\r\n\r\n"+bodyOf(9000, "")),
	)
	require.Zero(t, h.Gauges().Requests)
	require.Zero(t, h.Gauges().Bodies)
}
