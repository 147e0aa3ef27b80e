package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/workerproto"

	"github.com/stretchr/testify/require"
)

// server is a way to serve.
type server = func(context.Context, *Handler, net.Listener, http.Handler, *log.Logger) error

// serveAll serves callers that need no proof.
func serveAll(ctx context.Context, h *Handler, l net.Listener, handler http.Handler, errorLog *log.Logger) error {
	return h.Serve(ctx, l, false, handler, errorLog)
}

// guardedBy returns a handler for callers with tokens.
func guardedBy(h *Handler, tokens Tokens) http.Handler {
	h.Identify = func(_ net.Conn, token string) (v Visitor, objection string) {
		holder, known := tokens.Holder(KeyOf(token))
		if !known {
			return v, "send Authorization: Bearer and a token this dispatcher knows"
		}
		return Visitor{Peer: workerproto.Peer{UID: -1, GID: -1, Token: holder.Name, Address: "192.0.2.1"}, Rights: holder.Rights}, ""
	}
	return h.Guarded(false)
}

// served serves a handler on a loopback port, where callers need no token.
func served(t *testing.T, change func(*Config)) (address string, h *Handler, f *fake, seen *counts) {
	h, f, seen = testHandler(t, change)
	return opened(t, h, serveAll), h, f, seen
}

// opened serves a handler until the test ends.
func opened(t *testing.T, h *Handler, serve server) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, h, l, h, log.New(io.Discard, "", 0)) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return l.Addr().String()
}

// exchange connects, sends text and reads the status of the answer, or 0 if the
// server disconnects without one.
func exchange(t *testing.T, address, text string) (status int) {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	_, _ = io.WriteString(conn, text) // the server may close the connection meanwhile
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
}

const livez = "GET /livez HTTP/1.1\r\nHost: d\r\n\r\n"

func TestMalformedHTTPDoesNotAffectOtherCallers(t *testing.T) {
	address, _, _, seen := served(t, func(c *Config) { c.MaxHeader, c.MaxPayload = 4096, 1000 })
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"huge header":   {"GET /livez HTTP/1.1\r\nHost: d\r\nX: " + strings.Repeat("x", 100_000) + "\r\n\r\n", 431},
		"broken chunks": {"POST /v1/requests HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", 400},
		"a long body":   {"POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Length: 1000000000\r\n\r\n{", 413},
		"no HTTP":       {"SSH-2.0-OpenSSH\r\n\r\n", 400},
		"two hosts":     {"POST /v1/requests HTTP/1.1\r\nHost: d\r\nHost: e\r\nContent-Length: 14\r\n\r\n{\"type\":\"pdf\"}", 400},
		"no host":       {"POST /v1/requests HTTP/1.1\r\nContent-Length: 14\r\n\r\n{\"type\":\"pdf\"}", 400},
		"two lengths":   {"POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
	} {
		require.Equal(t, c.want, exchange(t, address, c.text), name)
		require.Equal(t, http.StatusOK, exchange(t, address, livez), "other callers after: %s", name)
	}
	require.Equal(t, 1, seen.hits(BoundPayload))
}

func TestSlowHTTPEndsAndDoesNotAffectOtherCallers(t *testing.T) {
	address, _, _, seen := served(t, func(c *Config) { // longer than a quick request takes on a shared machine
		c.HeaderTimeout, c.BodyTimeout, c.MaxPayload = 2*time.Second, 2*time.Second, 1000
	})
	var slow sync.WaitGroup
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"slow headers": {"GET /livez HTTP/1.1\r\nHost:", 0},
		"no request":   {"", 0},
		"half a body":  {"POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Length: 100\r\n\r\n{", 400},
		"two bodies": {"POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Length: 14\r\n" +
			"Transfer-Encoding: chunked\r\n\r\n{\"type\":\"pdf\"}", 400},
		"endless chunks": {
			"POST /v1/requests HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
				strings.Repeat("x", 2000) + "\r\n",
			413,
		},
		"a silent upload": {"POST /v1/jobs HTTP/1.1\r\nHost: d\r\nContent-Type: application/x-ndjson\r\nContent-Length: 100\r\n\r\n{}\n", 400},
	} {
		slow.Go(func() {
			if status := exchange(t, address, c.text); status != c.want {
				t.Errorf("%s: %d, want %d", name, status, c.want)
			}
		})
	}
	require.Equal(t, http.StatusOK, exchange(t, address, livez), "beside them")
	slow.Wait()
	require.Equal(t, http.StatusOK, exchange(t, address, livez), "after them")
	require.Equal(t, 3, seen.hits(BoundBodyTime), "half a body, half a chunk of two bodies, and a silent upload")
	require.Equal(t, 1, seen.hits(BoundPayload), "endless chunks")
}

// An oversized body is answered long before the body timeout.
func TestOversizedBodyIsAnsweredAlthoughTheCallerStopsSending(t *testing.T) {
	for _, head := range []string{"Transfer-Encoding: chunked\r\n\r\n7d0", "Content-Length: 100000\r\n\r\n"} {
		t.Run(head, func(t *testing.T) {
			t.Parallel()
			address, _, _, _ := served(t, func(c *Config) { c.BodyTimeout, c.MaxPayload = time.Hour, 1000 })
			text := "POST /v1/requests HTTP/1.1\r\nHost: d\r\n" + head + "\r\n" + strings.Repeat("x", 2000)
			require.Equal(t, http.StatusRequestEntityTooLarge, exchange(t, address, text))
		})
	}
}

// A caller that reads only after it has sent everything finds the answer and no
// broken pipe.
func TestOversizedBodyIsReadToItsEnd(t *testing.T) {
	const sent = 4 << 20
	address, _, _, seen := served(t, func(c *Config) { c.MaxPayload = 1000 })
	length := fmt.Sprintf("Content-Length: %d\r\n\r\n", sent)
	for head, status := range map[string]int{
		"POST /v1/requests HTTP/1.1\r\nHost: d\r\n" + length:                                                   http.StatusRequestEntityTooLarge,
		fmt.Sprintf("POST /v1/requests HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", sent): http.StatusRequestEntityTooLarge,
		"POST /v1/jobs HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\n" + length:                     http.StatusRequestEntityTooLarge,
		"POST /v1/jobs HTTP/1.1\r\nHost: d\r\nContent-Type: text/csv\r\n" + length:                             http.StatusUnsupportedMediaType,
		"POST /v1/jobs?onerror=skip HTTP/1.1\r\nHost: d\r\n" + length:                                          http.StatusBadRequest,
	} {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		_, err = io.WriteString(conn, head+strings.Repeat("x", sent))
		require.NoError(t, err, head)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, head)
		require.Equal(t, status, res.StatusCode, head)
		require.NoError(t, res.Body.Close())
		require.NoError(t, conn.Close())
	}
	require.Equal(t, 3, seen.hits(BoundPayload))
}

// An upload without long pauses ends, too, because its transaction
// stays open.
func TestEndlessUploadEnds(t *testing.T) {
	address, h, _, _ := served(t, nil)
	h.longestUpload = 100 * time.Millisecond
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /v1/jobs HTTP/1.1\r\nHost: d\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000000\r\n\r\n")
	require.NoError(t, err)
	answered := make(chan *http.Response, 1)
	go func() {
		defer close(answered)
		if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			_ = res.Body.Close() // only its status is checked
			answered <- res
		}
	}()
	drip := time.NewTicker(5 * time.Millisecond)
	defer drip.Stop()
	for range 1000 {
		select {
		case res := <-answered:
			require.NotNil(t, res)
			require.Equal(t, http.StatusBadRequest, res.StatusCode)
			return
		case <-drip.C:
			_, _ = io.WriteString(conn, "\n") // the server may close the connection meanwhile
		}
	}
	require.Fail(t, "the upload was not ended")
}

func TestIdleConnectionsMakeRoom(t *testing.T) {
	const most = 20
	address, h, _, seen := served(t, func(c *Config) { c.MaxConnections = most })
	var idle []net.Conn
	for range 5 * most {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		idle = append(idle, conn)
	}
	require.Equal(t, http.StatusOK, exchange(t, address, livez))
	require.LessOrEqual(t, h.Gauges().Connections, most)
	require.GreaterOrEqual(t, seen.hits(BoundConnections), 4*most)
	_, err := idle[0].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the connection that was idle longest is closed first")
}

func TestIdleConnectionEnds(t *testing.T) {
	address, h, _, _ := served(t, func(c *Config) { c.IdleTimeout = 30 * time.Millisecond })
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, livez)
	require.NoError(t, err)
	began := time.Now()
	text, err := io.ReadAll(conn)
	require.NoError(t, err, "the server closes the connection")
	require.Contains(t, string(text), "200 OK")
	require.Less(t, time.Since(began), DefaultConfig().IdleTimeout/2)
	require.Eventually(t, func() bool { return h.Gauges().Connections == 0 }, 30*time.Second, time.Millisecond)
}

// A reader that stops reading ends its stream after one write timeout. A shared
// request without other callers is cancelled.
func TestStreamWithoutReaderEnds(t *testing.T) {
	address, h, f, _ := served(t, func(c *Config) { c.WriteTimeout = 100 * time.Millisecond })
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	const body = `{"type":"pdf"}`
	_, err = fmt.Fprintf(
		conn,
		"POST /v1/requests HTTP/1.1\r\nHost: d\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s",
		len(body),
		body,
	)
	require.NoError(t, err)
	id := <-f.submitted
	big := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	for left := 1000; ; left-- { // until no socket takes more
		require.Positive(t, left, "the stream continues without a reader")
		f.withCaller(id, func(c ondemand.Caller) { c.Reported(ondemand.Event{Name: "partial", Attempt: 1, Data: big}) })
		select {
		case abandoned := <-f.abandoned:
			require.Equal(t, id, abandoned)
			require.Eventually(t, func() bool { return h.Gauges().Followers == 0 }, 30*time.Second, time.Millisecond)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestManyBadTokensAreCountedAndRejected(t *testing.T) {
	h, _, seen := testHandler(t, nil)
	tokens, err := ReadTokens(strings.NewReader("# who\n\nben 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"))
	require.NoError(t, err)
	guarded := guardedBy(h, tokens)
	status := func(path, header string) int {
		req := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		req.Header.Set("Authorization", header)
		rec := httptest.NewRecorder()
		guarded.ServeHTTP(rec, req)
		return rec.Code
	}
	for n := range 1000 {
		require.Equal(t, http.StatusUnauthorized, status("/v1/slots", fmt.Sprintf("Bearer %d", n)))
	}
	require.Equal(t, 1000, seen.hits(BoundToken))
	require.Equal(t, http.StatusOK, status("/v1/slots", "Bearer secret"))
	require.Equal(t, http.StatusOK, status("/livez", ""))
	line := "ben 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"
	twice := line + "anna" + strings.ToUpper(strings.TrimPrefix(line, "ben"))
	for _, bad := range []string{"ben secret", "ben", "ben 2bb8", twice, "cert:gpu-1 - worker\ncert:gpu-1 -"} {
		_, err := ReadTokens(strings.NewReader(bad))
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A request for an unknown path is rejected like any other.
func TestTokenIsCheckedBeforeTheRoute(t *testing.T) {
	h, _, seen := testHandler(t, nil)
	tokens, err := ReadTokens(strings.NewReader("ben 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"))
	require.NoError(t, err)
	guards := map[string]http.Handler{"tokens": guardedBy(h, tokens), "pages": h.Local(h)}
	for name, want := range map[string]map[string]int{
		"tokens": {"Host: d": http.StatusUnauthorized, "Host: d\r\nAuthorization: Bearer secret": http.StatusOK},
		"pages":  {"Host: page.example": http.StatusForbidden, "Host: localhost": http.StatusOK},
	} {
		address := opened(t, h, func(ctx context.Context, h *Handler, l net.Listener, _ http.Handler, errorLog *log.Logger) error {
			return h.Serve(ctx, l, false, guards[name], errorLog)
		})
		for header, status := range want {
			require.Equal(t, status, exchange(t, address, "OPTIONS * HTTP/1.1\r\n"+header+"\r\n\r\n"), "%s: %s", name, header)
		}
	}
	require.Equal(t, 1, seen.hits(BoundToken))
}

// post sends a request to the handler and returns the complete answer.
func post(ctx context.Context, h *Handler, body string, headers ...string) <-chan *httptest.ResponseRecorder {
	answer := make(chan *httptest.ResponseRecorder, 1)
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/requests", strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	go func() {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		answer <- rec
	}()
	return answer
}

func TestKeysOfSharedRequestsAreBounded(t *testing.T) {
	h, f, seen := testHandler(t, func(c *Config) { c.Keys = 3 })
	join := func(key string) *httptest.ResponseRecorder {
		return <-post(t.Context(), h, `{"type":"pdf","coalesce_key":"k"}`, "Idempotency-Key", key, "Prefer", "respond-async")
	}
	first := join("1")
	for _, key := range []string{"2", "3", "3", "1"} {
		require.Equal(t, first.Header().Get("Location"), join(key).Header().Get("Location"), key)
	}
	require.Equal(t, 3, h.Gauges().Keys)
	require.Equal(t, http.StatusTooManyRequests, join("4").Code, "the request has not ended")
	require.Equal(t, http.StatusTooManyRequests, (<-post(t.Context(), h, `{"type":"pdf"}`, "Idempotency-Key", "5")).Code)
	require.Equal(t, 2, seen.hits(ondemand.BoundKeys))
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
	require.Equal(t, first.Header().Get("Location"), join("2").Header().Get("Location"), "kept")
	require.Equal(t, http.StatusAccepted, join("4").Code, "the ended request was dropped")
	require.Equal(t, 1, h.Gauges().Keys)
	require.Equal(t, http.StatusNotFound, call(h, http.MethodGet, first.Header().Get("Location")).Code)
}

func TestSharedRequestsAreBoundedInNumberAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f, seen := testHandler(t, func(c *Config) { c.SharedRequests, c.KeepAnswers = 2, time.Minute })
		kept := func() *httptest.ResponseRecorder {
			return <-post(t.Context(), h, `{"type":"pdf"}`, "Prefer", "respond-async")
		}
		first, second := kept(), kept()
		require.Equal(t, http.StatusAccepted, first.Code)
		require.Equal(t, http.StatusTooManyRequests, kept().Code, "both go on")
		require.Equal(t, 1, seen.hits(ondemand.BoundRequests))
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
		require.Equal(t, http.StatusAccepted, kept().Code, "the ended request was dropped")
		get := func(of *httptest.ResponseRecorder) int {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, of.Header().Get("Location"), http.NoBody))
			return rec.Code
		}
		require.Equal(t, http.StatusNotFound, get(first))
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Failed, Reason: "torn"})
		require.Equal(t, http.StatusUnprocessableEntity, get(second))
		time.Sleep(time.Minute + time.Second)
		require.Equal(t, http.StatusNotFound, get(second), "kept long enough")
		require.Equal(t, 1, h.Gauges().Requests)
	})
}

func TestSlowReaderGetsAGap(t *testing.T) {
	h, f, seen := testHandler(t, func(c *Config) { c.EventsPerRequest = 10 })
	accepted := <-post(t.Context(), h, `{"type":"pdf"}`, "Prefer", "respond-async")
	id := <-f.submitted
	f.withCaller(id, func(c ondemand.Caller) {
		c.Started(7, "w")
		for n := range 100 {
			c.Reported(ondemand.Event{Name: "partial", Attempt: 1, Data: fmt.Appendf(nil, "%d", n)})
		}
	})
	f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"end"`)})
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, accepted.Header().Get("Location"), http.NoBody)
	req.Header.Set("Accept", "text/event-stream")
	h.ServeHTTP(rec, req)
	require.Contains(t, rec.Body.String(), `{"missed":91}`)
	require.NotContains(t, rec.Body.String(), "data: 89\n")
	require.Contains(t, rec.Body.String(), "data: 90\n")
	require.Contains(t, rec.Body.String(), "id: 101\nevent: partial\ndata: 99\n")
	require.Contains(t, rec.Body.String(), "event: result\ndata: \"end\"\n")
	require.Equal(t, 1, seen.hits(BoundEvents))
}

func TestBytesOfSharedRequestsAreBounded(t *testing.T) {
	const most = 10_000
	h, f, _ := testHandler(t, func(c *Config) { c.KeepBytes, c.EventsPerRequest = most, 1_000_000 })
	big := []byte(`"` + strings.Repeat("x", 998) + `"`)
	for range 20 {
		<-post(t.Context(), h, `{"type":"pdf"}`, "Prefer", "respond-async")
		id := <-f.submitted
		f.withCaller(id, func(c ondemand.Caller) {
			for range 30 {
				c.Reported(ondemand.Event{Name: "partial", Data: big})
			}
		})
		require.LessOrEqual(t, h.Gauges().Bytes, int64(most+1000))
		f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: big})
	}
	require.LessOrEqual(t, h.Gauges().Bytes, int64(most+1000))
}

func TestHeartbeatsKeepAnIdleStreamOpenUntilItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f, _ := testHandler(t, nil)
		answer := post(t.Context(), h, `{"type":"pdf","timeout":40,"coalesce_key":"k"}`, "Accept", "text/event-stream")
		id := <-f.submitted
		f.withCaller(id, func(c ondemand.Caller) { c.Started(1, "w") })
		rec := <-answer
		require.Equal(t, 2, strings.Count(rec.Body.String(), "\n:\n"), rec.Body)
		require.Contains(t, rec.Body.String(), "deadline-passed")
		require.Equal(t, id, <-f.abandoned)
	})
}

func TestTemporaryErrorIsNotKept(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	for _, kind := range []ondemand.AnswerKind{ondemand.Busy, ondemand.Stopping, ondemand.Unsupported} {
		answer := post(t.Context(), h, `{"type":"pdf"}`, "Idempotency-Key", "k")
		f.answer(<-f.submitted, ondemand.Answer{Kind: kind, Reason: "not now"})
		require.GreaterOrEqual(t, (<-answer).Code, 429)
	}
	answer := post(t.Context(), h, `{"type":"pdf"}`, "Idempotency-Key", "k")
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
	require.Equal(t, http.StatusOK, (<-answer).Code)
	require.Equal(t, http.StatusOK, (<-post(t.Context(), h, `{"type":"pdf"}`, "Idempotency-Key", "k")).Code)
	require.Empty(t, f.submitted)
}

func TestErrorsOfPostgresAreReported(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	for kind, refusal := range map[string]error{"unavailable": ondemand.ErrUnavailable, "stopping": ondemand.ErrStopping} {
		f.refusal = refusal
		for _, headers := range [][]string{nil, {"Prefer", "respond-async"}, {"Accept", "text/event-stream"}} {
			rec := <-post(t.Context(), h, `{"type":"pdf","durable":true}`, headers...)
			require.Equal(t, http.StatusServiceUnavailable, rec.Code)
			var p rest.Problem
			require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &p))
			require.Equal(t, rest.Namespace+kind, p.Type)
			require.Equal(t, "1", rec.Header().Get("Retry-After"))
		}
	}
	require.Zero(t, h.Gauges().Requests)
}

// Callers join and disconnect while the shared request ends. Each caller
// returns, and the request is cancelled exactly once.
func TestFollowersMayDisconnectAtTheEndOfASharedRequest(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	for range 200 {
		var all sync.WaitGroup
		ctx, disconnect := context.WithCancel(t.Context())
		for range 4 {
			all.Go(func() { <-post(ctx, h, `{"type":"pdf","coalesce_key":"k"}`) })
		}
		id := <-f.submitted
		all.Go(disconnect)
		all.Go(func() { f.answer(id, ondemand.Answer{Kind: ondemand.Done}) })
		all.Wait()
		for len(f.submitted) > 0 { // a caller after the end starts another request, and disconnects
			<-f.submitted
		}
		for len(f.abandoned) > 0 {
			<-f.abandoned
		}
	}
	require.Zero(t, h.Gauges().Requests)
}
