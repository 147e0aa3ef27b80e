package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// readBody reads a whole body of at most limit bytes, and counts the bytes towards
// MaxBodies. It reads to the end, because the server notices a disconnect of the caller
// only after that.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, limit int64) (_ []byte, held *ondemand.Body, err error) {
	if r.ContentLength > limit {
		endBody(w, r, false)
		return nil, nil, &http.MaxBytesError{Limit: limit}
	}
	held = h.requests.NewBody(userOf(r))
	var b bytes.Buffer
	b.Grow(int(min(max(r.ContentLength, 0), ondemand.FreeBody)) + bytes.MinRead) // memory for a large body is allocated only as it arrives
	_, err = b.ReadFrom(countedReader{http.MaxBytesReader(w, r.Body, limit), held})
	if err == nil {
		return b.Bytes(), held, nil
	}
	held.Drop()
	err = h.bodyError(err)
	if problemOf(err).Status != http.StatusBadRequest { // it is too large, over a budget or late: the caller may still be sending it
		endBody(w, r, true)
	}
	return nil, nil, err
}

// countedReader counts the bytes that are read from a body towards MaxBodies.
type countedReader struct {
	io.Reader

	held *ondemand.Body
}

// Read implements io.Reader.
func (c countedReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if refused := c.held.Add(int64(n)); refused != nil {
		return n, refused
	}
	return n, err
}

// endBody reads and discards the rest of a rejected body, within bounds. Many clients read
// the answer only after they have sent the whole body. If the server closed the connection
// before, they would get a broken pipe instead of the answer. A client that expects 100
// Continue sends no body before the server reads. begun says whether the server has read a
// part of the body.
func endBody(w http.ResponseWriter, r *http.Request, begun bool) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second)) // fails only on a connection without deadlines
	if begun || r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, maxDiscarded) // an error does not change the answer
	}
}

// maxDiscarded bounds the bytes of a rejected body that are read.
const maxDiscarded = 8 << 20

// bodyError returns the error for a body that could not be read. The error contains
// nothing of the body. bodyError counts timeouts.
func (h *Handler) bodyError(err error) error {
	var long *http.MaxBytesError
	var refused *rest.Problem
	switch {
	case errors.As(err, &long), errors.As(err, &refused):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		h.obs.Refused(BoundBodyTime)
		return rest.InvalidRequest.Of("the body did not arrive in time")
	}
	return rest.InvalidRequest.Of("the body broke off or is not well-formed")
}

// isJSON reports whether the declared media type is JSON in UTF-8. It also accepts the
// media type of forms, because curl declares it by default.
func isJSON(r *http.Request) bool {
	t, parameters, err := mime.ParseMediaType(cmp.Or(r.Header.Get("Content-Type"), rest.JSON))
	switch strings.ToLower(parameters["charset"]) {
	case "", "utf-8", "us-ascii": // RFC 8259 requires UTF-8
		return err == nil && (t == rest.JSON || strings.HasSuffix(t, "+json") || t == "application/x-www-form-urlencoded")
	}
	return false
}

// Span is a duration in JSON: a number of seconds, or a string such as "1.5s".
type Span time.Duration

// errNoSpan names all members that are spans, because a decoder does not say which one
// is invalid.
var errNoSpan = errors.New("timeout and wait_for_worker are numbers of seconds, or strings with a unit such as \"1.5s\"")

// UnmarshalJSON implements json.Unmarshaler.
func (s *Span) UnmarshalJSON(text []byte) error {
	word, err := strconv.Unquote(string(text))
	if err != nil { // a number
		word = string(text) + "s"
	}
	d, err := time.ParseDuration(word)
	if err != nil {
		return errNoSpan
	}
	*s = Span(d)
	return nil
}

// requestBody is the body of POST /v1/requests.
type requestBody struct {
	Type     string               `json:"type" required:"true" minLength:"1" maxLength:"128"` // What the request needs a slot to support.
	Payload  json.RawMessage      `json:"payload,omitempty"`                                  // Any JSON; it is sent to the worker unchanged.
	Priority dispatcherd.Priority `json:"priority,omitempty"`                                 // 10 is the most urgent.
	// How long the caller waits, as a number of seconds or a text. Absent: the default of the dispatcher.
	Timeout *Span `json:"timeout,omitempty"`
	// How long the request may wait while no slot supports its type. Absent: not at all, or 5 s if the last such slot disappears.
	WaitForWorker Span `json:"wait_for_worker,omitempty"`
	// true: the request is written to Postgres first. It survives the dispatcher, and others may serve it. Absent: this happens only if
	// no slot of this dispatcher supports the type, and one of another does; the answer then says via "queue". false: it never happens.
	Durable    *bool   `json:"durable,omitempty"`
	Keys       *string `json:"keys,omitempty"`                                         // Keys of a durable request, as for a job.
	ExpectedMS *int64  `json:"expected_ms,omitempty" minimum:"1" maximum:"2147483647"` // How long an attempt probably takes.
	// Callers with the same key, type, payload, priority and durable share one execution.
	CoalesceKey string `json:"coalesce_key,omitempty" maxLength:"256"`
	// W3C trace context, for the worker. Absent: that of the header Traceparent.
	Traceparent string `json:"traceparent,omitempty"`
}

// parseRequest reads and checks a request with an Idempotency-Key; "" = none.
func (h *Handler) parseRequest(body []byte, key string) (o ondemand.Request, err error) {
	var q requestBody
	if err := rest.Decode(body, &q); err != nil {
		return o, err
	}
	o.Options = ondemand.Options{
		Type:         q.Type,
		Payload:      q.Payload,
		Priority:     q.Priority,
		Timeout:      given(q.Timeout, 1),
		CapacityWait: time.Duration(q.WaitForWorker),
		Durable:      q.Durable != nil && *q.Durable,
		LocalOnly:    q.Durable != nil && !*q.Durable,
		CoalesceKey:  q.CoalesceKey,
		Key:          key,
		Expected:     given(q.ExpectedMS, time.Millisecond),
		Traceparent:  q.Traceparent,
	}
	if q.Keys != nil {
		o.Keys = cmp.Or(*q.Keys, " ") // no keys, which Check refuses
	}
	if err := h.requests.Check(&o); err != nil {
		return o, err
	}
	if q.Payload != nil {
		err = checkPayloads(q.Payload)
	}
	return o, err
}

// given returns a number of units as a duration, 0 if it is absent. An explicit 0 becomes negative, so that Check refuses it.
func given[N int64 | Span](n *N, unit time.Duration) time.Duration {
	if n == nil {
		return 0
	}
	return cmp.Or(time.Duration(min(max(int64(*n), -1), math.MaxInt64/int64(unit)))*unit, -unit)
}

// fanOutBody is the body of POST /v1/fanouts.
type fanOutBody struct {
	Type string `json:"type" required:"true" minLength:"1" maxLength:"128"` // What the chunks need a slot to support.
	// They are divided into contiguous chunks whose sizes differ by at most 1. The payload of a chunk is an array.
	Items      []json.RawMessage    `json:"items,omitempty"`
	Chunks     []json.RawMessage    `json:"chunks,omitempty" maxItems:"1000"`                       // Payloads, instead of items.
	Per        string               `json:"per,omitempty" enum:"worker,slot" default:"worker"`      // What gets one chunk each.
	Priority   dispatcherd.Priority `json:"priority,omitempty"`                                     // 10 is the most urgent.
	Timeout    *Span                `json:"timeout,omitempty"`                                      // As for a request.
	ExpectedMS *int64               `json:"expected_ms,omitempty" minimum:"1" maximum:"2147483647"` // How long an attempt probably takes.
	// Insert a batch for the slots of all dispatchers.
	Durable bool `json:"durable,omitempty" default:"false"`
}

// parseFanOut reads and checks a fan-out.
func (h *Handler) parseFanOut(body []byte) (f ondemand.FanOut, durable bool, err error) {
	var q fanOutBody
	if err := rest.Decode(body, &q); err != nil {
		return f, false, err
	}
	f.Type, f.Priority, f.PerSlot = q.Type, q.Priority, q.Per == "slot"
	f.Timeout, f.Expected = given(q.Timeout, 1), given(q.ExpectedMS, time.Millisecond)
	switch {
	case q.Per != "" && q.Per != "worker" && q.Per != "slot":
		return f, false, rest.InvalidRequest.Of(`per must be "worker" or "slot"`)
	case q.Durable && q.Per == "worker":
		return f, false, rest.InvalidRequest.Of(`durable needs per "slot": the workers of other dispatchers are not known`)
	}
	f.Items, f.Chunks = q.Items, q.Chunks
	if err = checkPayloads(slices.Concat(q.Items, q.Chunks)...); err == nil {
		err = h.requests.CheckFanOut(&f)
	}
	return f, q.Durable, err
}

// checkPayloads checks that payloads can be sent to a worker.
func checkPayloads(list ...json.RawMessage) error {
	for _, payload := range list {
		if err := jsontext.CheckValue(payload); err != nil {
			return rest.InvalidJob.Of("the payload cannot be sent to a worker: " + err.Error())
		}
	}
	return nil
}
