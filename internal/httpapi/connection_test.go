package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

// rawClient is one connection to a server.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func connect(t *testing.T, address string) *rawClient {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &rawClient{t, conn, bufio.NewReader(conn)}
}

const smallBody = `{"type":"pdf","payload":[1]}`

// sendRequests sends n requests in one write.
func (c *rawClient) sendRequests(n int) {
	c.sendBodies(slices.Repeat([]string{smallBody}, n)...)
}

// sendBodies sends a request with each body, all in one write.
func (c *rawClient) sendBodies(bodies ...string) {
	var all []byte
	for _, body := range bodies {
		all = fmt.Appendf(all, "POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	_, err := c.conn.Write(all)
	require.NoError(c.t, err)
}

// response is a response without its variable parts.
type response struct {
	status int
	header http.Header
	last   bool // of the connection
	text   string
}

// readResponse reads a response.
func (c *rawClient) readResponse() response {
	res, err := http.ReadResponse(c.in, nil)
	require.NoError(c.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(c.t, err)
	require.NotEmpty(c.t, res.Header.Get("Date"))
	res.Header.Del("Date")
	return response{res.StatusCode, res.Header, res.Close, string(text)}
}

// requireClosed waits until the server closes the connection.
func (c *rawClient) requireClosed() {
	_, err := c.in.ReadByte()
	require.ErrorIs(c.t, err, io.EOF)
}

func TestRefusalIsAProblemDocument(t *testing.T) {
	address, _, f, seen := served(t, nil)
	f.refusal = rest.InvalidJob.Of("it holds a number that is no number")
	c := connect(t, address)
	for range 3 {
		c.sendRequests(1)
		answer := c.readResponse()
		require.Equal(t, http.StatusUnprocessableEntity, answer.status)
		require.Contains(t, answer.text, "no number")
	}
	f.refusal = errors.New("unexpected")
	c.sendRequests(1)
	require.Equal(t, http.StatusInternalServerError, c.readResponse().status)
	require.EqualValues(t, 1, seen.failures.Load())
}

func TestPipelinedRequestsAreServedInOrder(t *testing.T) {
	address, h, f, _ := served(t, nil)
	c := connect(t, address)
	c.sendRequests(3)
	for n := range 3 {
		id := <-f.submitted
		require.Empty(t, f.submitted, "the next request is not read yet")
		f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: fmt.Appendf(nil, "%d", n)})
		require.Equal(t, strconv.Itoa(n), c.readResponse().text)
	}
	require.Equal(t, 1, h.Gauges().Connections)
}

func TestDisconnectCancelsTheRequest(t *testing.T) {
	address, h, f, seen := served(t, nil)
	const callers = 50
	for n := range callers {
		c := connect(t, address)
		for range n % 3 { // some have had answers before
			c.sendRequests(1)
			f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
			c.readResponse()
		}
		c.sendRequests(1)
		id := <-f.submitted
		require.NoError(t, c.conn.Close())
		require.Equal(t, id, <-f.abandoned)
	}
	require.Eventually(t, func() bool { return h.Gauges().Connections == 0 }, 30*time.Second, time.Millisecond)
	require.EqualValues(t, -f.last, seen.responses.Load(), "every request is accounted for")
}

// Pipelined requests are read as far as the buffer has room.
func TestAnyNumberOfPipelinedRequestsIsServed(t *testing.T) {
	address, _, f, _ := served(t, nil)
	c := connect(t, address)
	const all = 500
	c.sendRequests(all) // sockets have room for it
	for n := range all {
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: strconv.AppendInt(nil, int64(n), 10)})
		require.Equal(t, strconv.Itoa(n), c.readResponse().text)
	}
}

// A caller that has closed only its sending direction still reads. It gets the
// answers that need no waiting.
func TestHalfClosedConnectionGetsPipelinedAnswers(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	address := opened(t, h, serveAll)
	c := connect(t, address)
	const all = 200
	_, err := io.WriteString(c.conn, strings.Repeat(livez, all))
	require.NoError(t, err)
	require.NoError(t, c.conn.(*net.TCPConn).CloseWrite())
	for range all {
		require.Equal(t, http.StatusOK, c.readResponse().status)
	}
	c.requireClosed()
}

func TestDisconnectCancelsPipelinedRequests(t *testing.T) {
	address, h, f, _ := served(t, nil)
	for range 20 {
		c := connect(t, address)
		c.sendRequests(3)
		id := <-f.submitted
		require.NoError(t, c.conn.Close())
		f.answer(id, ondemand.Answer{Kind: ondemand.Done})
		for h.Gauges().Connections > 0 {
			select {
			case id := <-f.submitted:
				f.answer(id, ondemand.Answer{Kind: ondemand.Done})
			case <-time.After(time.Millisecond):
			}
		}
	}
}

func TestRequestMayLastLongerThanTheIdleTimeout(t *testing.T) {
	const idle = 40 * time.Millisecond
	address, h, f, _ := served(t, func(c *Config) { c.IdleTimeout, c.HeaderTimeout = idle, time.Hour })
	c := connect(t, address)
	require.NoError(t, c.conn.SetDeadline(time.Now().Add(20*time.Second)))
	c.sendRequests(1)
	id := <-f.submitted
	select {
	case <-f.abandoned:
		require.Fail(t, "the waiting request was cancelled")
	case <-time.After(4 * idle):
	}
	f.answer(id, ondemand.Answer{Kind: ondemand.Done})
	c.readResponse()
	c.requireClosed() // after the answer the connection is idle
	require.Eventually(t, func() bool { return h.Gauges().Connections == 0 }, 30*time.Second, time.Millisecond)
}

func TestConnectionWithUnreadAnswersEnds(t *testing.T) {
	address, h, f, _ := served(t, func(c *Config) { c.WriteTimeout = 50 * time.Millisecond })
	c := connect(t, address)
	c.sendRequests(100)
	big := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: big}) // the server has counted the connection by now
	for h.Gauges().Connections > 0 {
		select {
		case id := <-f.submitted:
			f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: big})
		case <-time.After(time.Millisecond):
		}
	}
	require.Less(t, -int(f.last), 100, "not all of them were served")
}

func TestStoppingServerCompletesAResponse(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx, l, false, h, log.New(io.Discard, "", 0)) }()
	idle, busy, lost := connect(t, l.Addr().String()), connect(t, l.Addr().String()), connect(t, l.Addr().String())
	idle.sendRequests(1)
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
	idle.readResponse()
	busy.sendRequests(1)
	id := <-f.submitted
	lost.sendRequests(1)
	never := <-f.submitted
	stop()
	idle.requireClosed()
	f.answer(id, ondemand.Answer{Kind: ondemand.Done})
	require.True(t, busy.readResponse().last)
	busy.requireClosed()
	require.Equal(t, never, <-f.abandoned, "it was cancelled after the grace period")
	require.NoError(t, <-ended)
	require.Eventually(t, func() bool { return h.Gauges().Connections == 0 }, 30*time.Second, time.Millisecond)
}
