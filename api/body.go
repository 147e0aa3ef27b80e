package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// readBody reads a whole body of bounded size, and counts it. It reads to the end,
// which is what makes the server watch for the caller's hanging up.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, limit int64) (_ []byte, held *load, err error) {
	if r.ContentLength > limit {
		endBody(w, r, false)
		return nil, nil, &http.MaxBytesError{Limit: limit}
	}
	held = &load{of: &h.bodies}
	var b bytes.Buffer
	b.Grow(int(min(max(r.ContentLength, 0), believedLength)) + bytes.MinRead) // so much room that the end is seen
	_, err = b.ReadFrom(metered{http.MaxBytesReader(w, r.Body, limit), held})
	if err == nil {
		return b.Bytes(), held, nil
	}
	held.drop()
	_, long := errors.AsType[*http.MaxBytesError](err)
	crowded := errors.Is(err, errBodies)
	if long || crowded {
		endBody(w, r, true)
	}
	if crowded {
		return nil, nil, h.refuseBody()
	}
	return nil, nil, h.bodyError(err)
}

// believedLength is for how many bytes of a body there is room before they come.
// Whoever announces more has to send them: thousands of callers who only announce
// cost next to nothing.
const believedLength = freeBody

// endBody reads on through a body that is not wanted, within bounds: many clients
// look for the answer only when they have sent all of it, and find a broken pipe
// otherwise. Who waits to be told to go on has sent nothing before it has begun to be
// read.
func endBody(w http.ResponseWriter, r *http.Request, begun bool) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second)) // fails on a connection without deadlines only
	if begun || r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, wastedLength) // however it ends, the answer is the same
	}
}

// wastedLength is how many bytes of a body are read for nothing.
const wastedLength = 8 << 20

// bodyError says what broke a body, without its content, and counts what came
// too late.
func (h *Handler) bodyError(err error) error {
	var long *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &long):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		h.obs.Refused(BoundBodyTime)
		return invalidRequest.of("the body did not arrive in time")
	}
	return invalidRequest.of("the body broke off or is not well-formed")
}

// isJSON checks the declared media type. curl's default is let through: nobody
// means a form. JSON that says it is anything but UTF-8 is not JSON.
func isJSON(r *http.Request) bool {
	t := r.Header.Get("Content-Type")
	if t == "" || t == "application/json" {
		return true
	}
	t, parameters, err := mime.ParseMediaType(t)
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return false // RFC 8259: JSON is UTF-8
	}
	return err == nil && (t == "application/json" || strings.HasSuffix(t, "+json") || t == "application/x-www-form-urlencoded")
}

// Span is a duration in JSON: a number of seconds, or a string such as "1.5s".
type Span time.Duration

// errNoSpan names the members that are spans: a decoder does not say which it was at.
var errNoSpan = errors.New("timeout and wait_for_worker are numbers of seconds, or strings with a unit such as \"1.5s\"")

// UnmarshalJSON implements json.Unmarshaler.
func (s *Span) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		var word string
		if err := json.Unmarshal(text, &word); err != nil {
			return err
		}
		d, err := time.ParseDuration(word)
		if err != nil {
			return errNoSpan
		}
		*s = Span(d)
		return nil
	}
	var seconds float64
	err := json.Unmarshal(text, &seconds)
	span, fits := spanOf(seconds)
	if err != nil || !fits {
		return errNoSpan
	}
	*s = span
	return nil
}

// spanOf is so many seconds, unless they are too many for anything.
func spanOf(seconds float64) (Span, bool) {
	if math.Abs(seconds) > 1e9 {
		return 0, false
	}
	return Span(seconds * float64(time.Second)), true
}

// requestBody is the body of POST /v1/requests.
type requestBody struct {
	Type          string               `doc:"What the request needs a slot to support."                                                          json:"type"                      maxLength:"128" minLength:"1"`
	Payload       json.RawMessage      `doc:"Any JSON; given to the worker as it is."                                                            json:"payload,omitempty"`
	Priority      dispatcherd.Priority `doc:"The larger the more urgent."                                                                        json:"priority,omitempty"        maximum:"10"    minimum:"0"`
	Timeout       *Span                `doc:"How long the caller waits; the dispatcher's default if not given."                                  json:"timeout,omitempty"`
	WaitForWorker *Span                `doc:"How long it may wait while there is no slot for the type; 0: not at all, 5 s if the last one goes." json:"wait_for_worker,omitempty"`
	Durable       bool                 `doc:"Write it to Postgres first: it survives the dispatcher, and others may serve it."                   json:"durable,omitempty"`
	CoalesceKey   string               `doc:"Callers with the same key, type, payload, priority and durable share one run."                      json:"coalesce_key,omitempty"    maxLength:"256"`
}

// requestFields are the names in it.
var requestFields = []string{"type", "payload", "priority", "timeout", "wait_for_worker", "durable", "coalesce_key"}

// parseRequest reads and checks a request.
func (h *Handler) parseRequest(body []byte) (requestBody, error) {
	var q requestBody
	if !utf8.Valid(body) {
		return q, invalidRequest.of("it is not UTF-8")
	}
	if json.Unmarshal(body, &q) != nil {
		return q, invalidRequest.of(notARequest(body))
	}
	if err := jsontext.CheckNames(body, requestFields); err != nil {
		return q, invalidRequest.of(err.Error())
	}
	return q, h.checkRequest(&q)
}

// notARequest says what is wrong with a body that cannot be read: first what is wrong
// with the object, then what follows it. A Decoder tells one from the other, but
// copies the body first.
func notARequest(body []byte) string {
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(new(requestBody)); err != nil {
		return jsonReason(err)
	}
	return "something follows the JSON object"
}

func (h *Handler) checkRequest(q *requestBody) error {
	switch {
	case q.Type == "":
		return invalidRequest.of("type is missing")
	case len(q.Type) > dispatcherd.MaxTypeLength:
		return invalidRequest.of(fmt.Sprintf("type has %d bytes; at most %d are allowed", len(q.Type), dispatcherd.MaxTypeLength))
	case !utf8.ValidString(q.Type) || strings.ContainsFunc(q.Type, unicode.IsControl):
		return invalidRequest.of("type holds a control character")
	case !q.Priority.Valid():
		return invalidRequest.of(fmt.Sprintf("priority %d is outside %d..%d", q.Priority, dispatcherd.MinPriority, dispatcherd.MaxPriority))
	case q.Timeout != nil && (time.Duration(*q.Timeout) < time.Millisecond || time.Duration(*q.Timeout) > h.cfg.MaxTimeout):
		return invalidRequest.of(fmt.Sprintf("timeout must lie between 1ms and %v", h.cfg.MaxTimeout))
	case q.WaitForWorker != nil && (*q.WaitForWorker < 0 || time.Duration(*q.WaitForWorker) > h.cfg.MaxTimeout):
		return invalidRequest.of(fmt.Sprintf("wait_for_worker must lie between 0 and %v", h.cfg.MaxTimeout))
	case len(q.CoalesceKey) > maxKey:
		return invalidRequest.of(fmt.Sprintf("coalesce_key has %d bytes; at most %d are allowed", len(q.CoalesceKey), maxKey))
	}
	return nil
}

// maxKey bounds coalesce keys and idempotency keys, in bytes.
const maxKey = 256

// request is what the dispatcher is given.
func (h *Handler) request(q *requestBody) (Request, error) {
	r := Request{Type: q.Type, Priority: q.Priority, Payload: q.Payload, Deadline: h.cfg.DefaultTimeout, Durable: q.Durable}
	if q.Timeout != nil {
		r.Deadline = time.Duration(*q.Timeout)
	}
	if q.WaitForWorker != nil {
		r.Wait, r.Patience = *q.WaitForWorker > 0, time.Duration(*q.WaitForWorker)
	}
	if q.Payload == nil {
		return r, nil
	}
	if err := jsontext.CheckValue(q.Payload); err != nil {
		return r, &InvalidError{fmt.Errorf("the payload cannot be sent to a worker: %w", err)}
	}
	if !onOneLine(r.Payload) {
		var line bytes.Buffer
		if err := json.Compact(&line, r.Payload); err != nil {
			return r, invalidRequest.of("the payload is not JSON")
		}
		r.Payload = line.Bytes()
	}
	return r, nil
}

// onOneLine reports whether a payload has no line break.
func onOneLine(payload []byte) bool { return !bytes.ContainsAny(payload, "\n\r") }

// jsonReason rewords a decoder's error without quoting the input.
func jsonReason(err error) string {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return "a request is a JSON object, not a JSON " + jsontext.Excerpt(kind.Value)
	case errors.As(err, &kind):
		return kind.Field + " cannot be the JSON " + jsontext.Excerpt(kind.Value)
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is not JSON (byte %d)", syntax.Offset)
	case errors.Is(err, io.EOF):
		return "the body is empty; a request is a JSON object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it is not JSON (it ends too early)"
	}
	return err.Error()
}
