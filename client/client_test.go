//go:build unix

package client

import (
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestJobsAreInsertedInEveryWay(t *testing.T) {
	ctx := t.Context()
	url := pgtest.New(t)
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer db.Close()

	job := Job{
		Type:        "pdf",
		Payload:     map[string]int{"page": 1},
		Priority:    3,
		MaxAttempts: 2,
		Timeout:     1500 * time.Microsecond,
		Expected:    time.Minute,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Backoff:     "fixed:1s",
		RunAt:       time.Unix(1_700_000_000, 0),
	}
	id, err := Insert(ctx, conn, job)
	require.NoError(t, err)
	require.EqualValues(t, 1, id)
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	_, err = Insert(ctx, tx, job)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx), "the job is rolled back, too")
	stx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = Insert(ctx, SQLTx(stx), job)
	require.NoError(t, err)
	require.NoError(t, stx.Commit())
	n, err := InsertMany(ctx, conn, slices.Values([]Job{job, job, {Type: "plain"}}))
	require.NoError(t, err)
	require.EqualValues(t, 3, n)

	var count int
	require.NoError(t,
		conn.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.jobs WHERE type = 'pdf' AND payload = '{"page": 1}' AND priority = 3
		AND max_attempts = 2 AND backoff = 'fixed:1s' AND timeout_ms = 2 AND expected_ms = 60000
		AND traceparent LIKE '00-0af%' AND run_at = to_timestamp(1700000000)`).Scan(&count),
	)
	require.Equal(t, 4, count)
	require.NoError(t, conn.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.jobs WHERE type = 'plain' AND payload = '{}'
		AND max_attempts IS NULL AND backoff IS NULL AND timeout_ms IS NULL AND expected_ms IS NULL
		AND traceparent IS NULL AND run_at <= now()`).Scan(&count))
	require.Equal(t, 1, count)
}

func TestRefusedJobIsAnErrorAndNothingIsInserted(t *testing.T) {
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, pgtest.New(t))
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = Insert(ctx, conn, Job{Type: "pdf", Priority: 11})
	require.ErrorContains(t, err, "priority must be 0 to 10")
	require.ErrorContains(t, err, "priority_is_0_to_10")
	_, err = Insert(ctx, conn, Job{Type: "payroll\u200b"})
	require.ErrorContains(t, err, `a job of type "payroll\u200b": type has the invisible character U+200B at byte 8`)
	for _, timeout := range []time.Duration{-1, math.MaxInt64} {
		_, err = Insert(ctx, conn, Job{Type: "pdf", Timeout: timeout})
		require.ErrorContains(t, err, "its timeout is "+timeout.String()+", must be more than 0 and at most 596h31m23.647s")
		_, err = InsertMany(ctx, conn, slices.Values([]Job{{Type: "pdf", Expected: timeout}}))
		require.ErrorContains(t, err, "its expected duration is "+timeout.String()+", must be more than 0 and at most 596h31m23.647s")
	}
	_, err = Insert(ctx, conn, Job{Type: "pdf", MaxAttempts: -65_535})
	require.ErrorContains(t, err, "max_attempts is -65535, must be 1 to 32767")
	_, err = Insert(ctx, conn, Job{Type: "pdf", Payload: func() {}})
	require.ErrorContains(t, err, `a job of type "pdf": its payload: json`)
	_, err = Insert(ctx, conn, Job{Type: "pdf", Payload: json.RawMessage(`{"n":1e2000}`)})
	require.ErrorContains(t, err,
		`a job of type "pdf": its payload: it cannot be sent to a worker: it contains a number of more than 1,024 characters`)
	_, err = InsertMany(ctx, conn, slices.Values([]Job{{Type: "pdf"}, {Type: "pdf", Payload: json.Number("-1e-1022")}}))
	require.ErrorContains(t, err, "cannot be sent to a worker")
	_, err = InsertMany(ctx, conn, slices.Values([]Job{{Type: "pdf"}, {Type: ""}}))
	require.ErrorContains(t, err, "inserting jobs")
	var count int
	require.NoError(t, conn.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.jobs`).Scan(&count))
	require.Zero(t, count)
}

// panicking is a payload whose MarshalJSON panics.
type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("boom") }

// pgx reads the jobs in a goroutine of its own, where a panic would end the process.
func TestPanicOfAJobStopsInsertManyInTheCallersGoroutine(t *testing.T) {
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, pgtest.New(t))
	require.NoError(t, err)
	defer conn.Close(ctx)
	require.PanicsWithValue(t, "boom", func() {
		_, _ = InsertMany(ctx, conn, slices.Values([]Job{{Type: "pdf"}, {Type: "pdf", Payload: panicking{}}}))
	})
	ended := make(chan bool)
	go func() {
		defer close(ended)
		_, _ = InsertMany(ctx, conn, func(yield func(Job) bool) { runtime.Goexit() })
		t.Error("runtime.Goexit did not end the goroutine")
	}()
	<-ended
	n, err := InsertMany(ctx, conn, slices.Values([]Job{{Type: "pdf"}}))
	require.NoError(t, err, "the connection is still usable")
	require.EqualValues(t, 1, n)
	var count int
	require.NoError(t, conn.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.jobs`).Scan(&count))
	require.Equal(t, 1, count)
}

// dispatcher returns a client of a test server.
func dispatcher(t *testing.T, answer http.HandlerFunc) *Client {
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := New(Options{URL: server.URL + "/", Token: "secret"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestRequestContainsAllOptions(t *testing.T) {
	var header http.Header
	var got map[string]any
	c := dispatcher(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		_ = json.NewDecoder(r.Body).Decode(&got)
		_, _ = w.Write([]byte(`{"ok":true}`))
	})
	result, err := c.Do(t.Context(), Request{
		Type: "pdf", Payload: json.RawMessage(`{"page":1}`), Priority: 4, Timeout: 1500 * time.Millisecond,
		WaitForWorker: 2 * time.Second, Durable: true, Expected: time.Minute, CoalesceKey: "c", IdempotencyKey: "k",
		Traceparent: "t",
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"ok":true}`, string(result))
	require.Equal(t, "Bearer secret", header.Get("Authorization"))
	require.Equal(t, "k", header.Get("Idempotency-Key"))
	require.Equal(t, map[string]any{
		"type": "pdf", "payload": map[string]any{"page": 1.0}, "priority": 4.0, "timeout": "1.5s", "wait_for_worker": "2s",
		"durable": true, "expected_ms": 60000.0, "coalesce_key": "c", "traceparent": "t",
	}, got)
}

func TestBytesOfAPayloadAreJSON(t *testing.T) {
	var got struct{ Payload json.RawMessage }
	c := dispatcher(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
		_, _ = w.Write([]byte(`{}`))
	})
	for _, payload := range []any{[]byte(`{"page":1}`), json.RawMessage(`{"page":1}`), map[string]int{"page": 1}} {
		r := Request{Type: "pdf", Payload: payload}
		_, err := c.Do(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, `{"page":1}`, string(got.Payload))
		f, err := r.frame(false)
		require.NoError(t, err)
		require.Equal(t, `{"page":1}`, string(f.Payload))
		row, err := (&Job{Type: "pdf", Payload: payload}).row()
		require.NoError(t, err)
		require.Equal(t, `{"page":1}`, row[1])
	}
	r := Request{Type: "pdf", Payload: []byte("%PDF-1.7")}
	_, err := c.Do(t.Context(), r)
	require.ErrorContains(t, err, "the payload of the request")
	_, err = r.frame(false)
	require.ErrorContains(t, err, "the payload of the request")
	_, err = (&Job{Type: "pdf", Payload: r.Payload}).row()
	require.ErrorContains(t, err, "its payload")
}

func TestProblemIsAnErrorWithFields(t *testing.T) {
	c := dispatcher(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			_, _ = w.Write([]byte(`{"id":7,"status":"running"}`))
			return
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"type":"` + TypeQueueFull + `","title":"full","detail":"9 wait","retry_after_ms":1500}`))
	})
	_, err := c.Do(t.Context(), Request{Type: "pdf"})
	var p *Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, TypeQueueFull, p.Type)
	require.Equal(t, http.StatusTooManyRequests, p.Status)
	require.Equal(t, 1500*time.Millisecond, p.RetryAfter())
	require.EqualError(t, err, "full: 9 wait")
	status, err := c.Cancel(t.Context(), 7)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Running, status)
}

// The server ends a connection that was used before, after it has received the request.
func TestClientSendsARequestWithAKeyOnlyOnce(t *testing.T) {
	var received atomic.Int32
	c := dispatcher(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if received.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	})
	_, err := c.Do(t.Context(), Request{Type: "pdf", IdempotencyKey: "1"})
	require.NoError(t, err)
	_, err = c.Do(t.Context(), Request{Type: "pdf", IdempotencyKey: "2"})
	require.EqualValues(t, 2, received.Load())
	require.ErrorIs(t, err, ErrUnknownOutcome)

	unreachable, err := New(Options{URL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	_, err = unreachable.Do(t.Context(), Request{Type: "pdf", IdempotencyKey: "3"})
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrUnknownOutcome, "nothing was sent")
}

func TestStreamEndsWithResultOrProblem(t *testing.T) {
	var accept string
	tail := "event: result\ndata: [1]\n\n"
	c := dispatcher(t, func(w http.ResponseWriter, r *http.Request) {
		accept = r.Header.Get("Accept")
		_, _ = w.Write([]byte(":\n\nid: 1\nevent: started\ndata: {\"slot\":1}\n\n" + tail))
	})
	var seen []Event
	note := func(e Event) error { seen = append(seen, e); return nil }
	result, err := c.Stream(t.Context(), Request{Type: "pdf"}, note)
	require.NoError(t, err)
	require.JSONEq(t, `[1]`, string(result))
	require.Equal(t, "text/event-stream", accept)
	require.Equal(t, []Event{{ID: "1", Name: "started", Data: json.RawMessage(`{"slot":1}`)}}, seen)
	tail = "event: error\ndata: {\"type\":\"" + TypeJobFailed + "\",\"title\":\"failed\"}\n\n"
	_, err = c.Stream(t.Context(), Request{Type: "pdf"}, note)
	require.EqualError(t, err, "failed")
	tail = ""
	_, err = c.Stream(t.Context(), Request{Type: "pdf"}, note)
	require.ErrorIs(t, err, ErrUnknownOutcome)
	enough := errors.New("enough")
	_, err = c.Stream(t.Context(), Request{Type: "pdf"}, func(Event) error { return enough })
	require.ErrorIs(t, err, enough)
}

func TestClientNeedsExactlyOneAddress(t *testing.T) {
	_, err := New(Options{})
	require.ErrorContains(t, err, "give Socket or URL")
	_, err = New(Options{Socket: "a", URL: "b"})
	require.ErrorContains(t, err, "choose one")
	_, err = New(Options{Socket: strings.Repeat("x", 200)})
	require.ErrorContains(t, err, "it has 200 bytes, choose one of 1 to")
}

// The URL may contain a password by mistake, so no error contains it.
func TestInvalidURLIsRejectedWithoutPrintingIt(t *testing.T) {
	for _, address := range []string{
		"http://anna:secret@d:1", "secret", "secret://d", "http://", "http://d:secret", "postgres://anna:secret@d/db",
	} {
		_, err := New(Options{URL: address})
		require.ErrorContains(t, err, "such as http://127.0.0.1:8088", address)
		require.NotContains(t, err.Error(), "secret")
		_, err = New(Options{URL: address, Socket: "s"})
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestControlsOfAnEmptyTypeAreRefused(t *testing.T) {
	c, err := New(Options{URL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	_, err = c.PauseType(t.Context(), "", PauseOrder{})
	require.ErrorContains(t, err, "the type is empty")
	_, err = c.SetRetries(t.Context(), "", RetryPolicy{})
	require.ErrorContains(t, err, "the type is empty")
}
