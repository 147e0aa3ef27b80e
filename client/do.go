package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// ErrUnknownOutcome says that a request was sent, and that its connection ended before the
// answer. The job may have run, may run now, or may run later. A Client never sends a request
// twice. The caller may repeat a Durable request with an IdempotencyKey, to any dispatcher,
// without a second execution of the job.
var ErrUnknownOutcome = errors.New("the outcome of the request is unknown, because its answer did not arrive")

// Request is a job whose caller waits for the result.
type Request struct {
	Type     string
	Payload  any // encoded as JSON; a []byte or json.RawMessage must be JSON and is sent unchanged
	Priority dispatcherd.Priority
	// Timeout is how long to wait for the result, rounded to milliseconds; 0 = the
	// dispatcher's default.
	Timeout time.Duration
	// WaitForWorker is how long to wait for a slot that supports the type; 0 =
	// fail at once if there is none.
	WaitForWorker time.Duration
	// A Durable request is written to Postgres before it is queued. It survives the death of
	// the dispatcher, and another dispatcher may serve it. Other requests become rows, too, if no slot of the dispatcher supports the type
	// and a slot of another one does; [Answer.Via] says so. Such a request is not retried after a failure.
	Durable bool
	// LocalOnly requests never become rows: if no slot of the dispatcher supports the type, the error is a *Problem of type [TypeNoSlot],
	// which names dispatchers that have one. It has no effect with Durable.
	LocalOnly bool
	// Keys are up to four words KEY, KEY*COST or KEY*all: the job runs only while it has a permit of each key. They
	// need Durable.
	Keys string
	// Expected is how long an attempt probably takes, rounded to milliseconds; 0 = unknown.
	Expected time.Duration
	// Callers with the same CoalesceKey, type, payload, priority, Durable and Keys share one execution.
	CoalesceKey string
	// Calls with the same IdempotencyKey and the same request get the same answer. The key of a
	// Durable request is stored with its row. Other keys are lost when their dispatcher ends.
	IdempotencyKey string
	// Traceparent is the W3C trace context that the worker gets; "" = none.
	Traceparent string
}

// wireRequest is a Request in its JSON form.
type wireRequest struct {
	Type          string               `json:"type"`
	Payload       any                  `json:"payload,omitempty"`
	Priority      dispatcherd.Priority `json:"priority,omitempty"`
	Timeout       string               `json:"timeout,omitempty"`
	WaitForWorker string               `json:"wait_for_worker,omitempty"`
	Durable       *bool                `json:"durable,omitempty"`
	Keys          string               `json:"keys,omitempty"`
	ExpectedMS    *int64               `json:"expected_ms,omitempty"`
	CoalesceKey   string               `json:"coalesce_key,omitempty"`
	Traceparent   string               `json:"traceparent,omitempty"`
}

// durable returns the value of the member durable, nil if it is left out.
func (r *Request) durable() *bool {
	if r.Durable || r.LocalOnly {
		return &r.Durable
	}
	return nil
}

// expectedMS returns an expected duration in milliseconds, or nil if it is unknown.
func expectedMS(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	return new(d.Round(time.Millisecond).Milliseconds())
}

// post sends a request over HTTP. net/http would repeat a POST with an Idempotency-Key when a
// reused connection ends, and the job of the first one could run, too. net/http compares the
// canonical name of the header only, and dispatchers accept any case.
func (c *Client) post(ctx context.Context, r *Request, accept string) (*http.Response, error) {
	wire := wireRequest{
		Type: r.Type, Payload: jsonValue(r.Payload), Priority: r.Priority, Durable: r.durable(), Keys: r.Keys, CoalesceKey: r.CoalesceKey,
		Timeout: spanText(r.Timeout), WaitForWorker: spanText(r.WaitForWorker), ExpectedMS: expectedMS(r.Expected),
		Traceparent: r.Traceparent,
	}
	body, err := json.Marshal(wire)
	if err != nil {
		return nil, fmt.Errorf("the payload of the request: %w", err)
	}
	header := http.Header{"Accept": {accept}}
	if r.IdempotencyKey != "" {
		header["idempotency-key"] = []string{r.IdempotencyKey}
	}
	var sent atomic.Bool
	res, err := c.Send(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}),
		http.MethodPost, "/v1/requests", bytes.NewReader(body), header)
	if _, isProblem := errors.AsType[*Problem](err); err != nil && sent.Load() && !isProblem && ctx.Err() == nil {
		err = unknownOutcome(err)
	}
	return res, err
}

func unknownOutcome(err error) error { return fmt.Errorf("%w: %w", ErrUnknownOutcome, err) }

// jsonValue returns what json.Marshal encodes for a payload. It would encode a []byte as
// base64, but a []byte is JSON already, as in pgx.
func jsonValue(payload any) any {
	if text, ok := payload.([]byte); ok {
		return json.RawMessage(text)
	}
	return payload
}

func spanText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(time.Millisecond).String()
}

// Do runs a job now and waits for its result. The result is JSON, at most 16 MiB; null if the
// worker returned none.
//
// The request ends at the earliest of three times. After r.Timeout, or the dispatcher's default of 30 s, the
// error is a *Problem of type [TypeDeadlinePassed]. After r.WaitForWorker without a slot for the type it is one
// of type [TypeNoSlot]. When ctx ends, the error wraps ctx.Err() and the job is cancelled. Over TCP this is a
// disconnect, so a Durable request with an IdempotencyKey continues until its Timeout.
//
// A failed job is a *Problem of type [TypeJobFailed], a cancelled one of type
// [TypeJobCancelled]. If the dispatcher rejects a request, the error is another *Problem.
// [Problem.RetryAfter] says when to try again.
//
// Do repeats only what was not sent: after the end of an idle connection it connects again. If
// the connection ends after the request was sent, the error wraps [ErrUnknownOutcome]. Any other
// error means that the request was not sent, or that its answer is too long.
func (c *Client) Do(ctx context.Context, r Request) (json.RawMessage, error) {
	a, err := c.Ask(ctx, r)
	return a.Result, err
}

// Answer is the result of a request, and how it was served.
type Answer struct {
	Result json.RawMessage
	Job    dispatcherd.JobID // the row of the request; 0 = it has none
	Via    string            // "queue": it became that row because no slot of the dispatcher supports its type, and one of another does
	Worker string            // that ran it, if the dispatcher knows its name
}

// Ask is Do, and also says how the request was served.
func (c *Client) Ask(ctx context.Context, r Request) (Answer, error) {
	if c.frames != nil {
		return c.frames.do(ctx, &r, nil)
	}
	res, err := c.post(ctx, &r, "application/json")
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = res.Body.Close() }()                              // the body was read
	id, _ := strconv.ParseInt(res.Header.Get("Dispatcherd-Job"), 10, 64) // 0 if there is none
	a := Answer{Job: dispatcherd.JobID(id), Via: res.Header.Get("Dispatcherd-Via"), Worker: res.Header.Get("Dispatcherd-Worker")}
	a.Result, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return Answer{}, unknownOutcome(err)
	case len(a.Result) > maxAnswer:
		return Answer{}, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return a, nil
}

// Event is one event of a request.
type Event struct {
	ID   string          // position in the stream
	Name string          // queued, started, progress, partial, log or gap
	Data json.RawMessage // as docs/reference/api.md describes it
}

// Stream is like Do, and also calls seen for each event. If seen returns an error, Stream
// cancels the request and returns this error.
func (c *Client) Stream(ctx context.Context, r Request, seen func(Event) error) (json.RawMessage, error) {
	if c.frames != nil {
		a, err := c.frames.do(ctx, &r, seen)
		return a.Result, err
	}
	res, err := c.post(ctx, &r, "text/event-stream")
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // before the end of the stream this ends the connection
	result, err := readStream(res.Body, seen)
	if errors.Is(err, errBroken) {
		err = unknownOutcome(err)
	}
	return result, err
}

// Follow calls seen for each event of a job, which is a row, until the job ends, and returns
// its result. docs/reference/api.md describes the events. Follow does not cancel the job. lastID is the id
// of the last event with an id that the caller knows, "" for none. If the job does not exist,
// fails or is cancelled, the error is a *Problem. If seen returns an error, Follow returns it.
func (c *Client) Follow(ctx context.Context, id dispatcherd.JobID, lastID string, seen func(Event) error) (json.RawMessage, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if lastID != "" {
		header.Set("Last-Event-ID", lastID)
	}
	res, err := c.Send(ctx, http.MethodGet, fmt.Sprintf("/v1/jobs/%d/events", id), nil, header)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // as in Stream
	return readStream(res.Body, seen)
}

// errBroken says that a stream ended before its last event.
var errBroken = errors.New("the stream of events broke off")

// readStream reads events until the last one, which is the result or a problem.
func readStream(body io.Reader, seen func(Event) error) (json.RawMessage, error) {
	events := bufio.NewScanner(body)
	events.Buffer(nil, maxAnswer)
	for {
		e, err := readEvent(events)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errBroken, err)
		case e.Name == "result":
			return e.Data, nil
		case e.Name == "error":
			p := &Problem{}
			if err := json.Unmarshal(e.Data, p); err != nil {
				return nil, fmt.Errorf("the stream ended with an error that cannot be understood: %w", err)
			}
			return nil, p
		}
		if err := seen(e); err != nil {
			return nil, err
		}
	}
}

// readEvent reads the next event and skips comments.
func readEvent(lines *bufio.Scanner) (Event, error) {
	var e Event
	for lines.Scan() {
		line := lines.Text()
		if line == "" && e.Name != "" {
			return e, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			e.ID = value
		case "event":
			e.Name = value
		case "data":
			e.Data = append(e.Data, value...)
		}
		if len(e.Data) > maxAnswer {
			return e, bufio.ErrTooLong
		}
	}
	return e, cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}
