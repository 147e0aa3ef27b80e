package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Namespace is the prefix of every problem type. The rest is the name of a [Kind].
const Namespace = "urn:dispatcherd:problem:"

// Problem is an error as callers see it (RFC 9457).
type Problem struct { //nolint:errname // RFC 9457 calls it a problem
	Type         string            `json:"type"` // stable name of the kind of problem; see docs/reference/api.md
	Title        string            `json:"title"`
	Status       int               `json:"status"`
	Detail       string            `json:"detail,omitempty"`
	Job          dispatcherd.JobID `json:"job,omitempty"`              // the row it is about
	Via          string            `json:"via,omitempty" enum:"queue"` // the request became that row because another dispatcher has the slots
	Line         int               `json:"line,omitempty"`             // the line of an upload it is about
	RetryAfterMS int64             `json:"retry_after_ms,omitempty"`
	Problems     []Problem         `json:"problems,omitempty"` // one for each of the first bad lines of an upload
	Bad          int               `json:"bad,omitempty"`      // bad lines of an upload, listed or not
	Matching     *int              `json:"matching,omitempty"` // of unexpected-count: the elements that the filter selects
}

// Error is the title and the detail.
func (p *Problem) Error() string { return strings.TrimSuffix(p.Title+": "+p.Detail, ": ") }

// RetryAfter is the time after which a retry makes sense; 0 = not reported.
func (p *Problem) RetryAfter() time.Duration { return time.Duration(p.RetryAfterMS) * time.Millisecond }

// Text returns the problem as JSON on one line.
func (p *Problem) Text() []byte {
	text, _ := json.Marshal(p) // encoding numbers and text cannot fail
	return text
}

// Send answers with the problem.
func (p *Problem) Send(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	NameRow(h, p.Job, p.Via)
	if p.RetryAfterMS > 0 {
		h.Set("Retry-After", strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="dispatcherd"`)
	}
	if p.Status == CallerGone.Status {
		h.Set("Connection", "close") // pipelined requests on this connection are dropped
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(p.Text(), '\n')) // fails only if the caller has disconnected
}

// NameRow sets the headers that name the row of a response, if there is one. via says why a request is a row, see [Problem].
func NameRow(h http.Header, id dispatcherd.JobID, via string) {
	if id > 0 {
		if via != "" {
			h.Set("Dispatcherd-Via", via)
		}
		h.Set("Dispatcherd-Job", fmt.Sprint(id))
		h.Set("Location", JobPath(id))
	}
}

// JobPath returns the path of a job.
func JobPath(id dispatcherd.JobID) string { return fmt.Sprintf("/v1/jobs/%d", id) }

// Name is the name of the problem's kind.
func (p *Problem) Name() string { return strings.TrimPrefix(p.Type, Namespace) }

// About sets the row of the problem. It ignores negative ids: requests in memory have no row.
func (p *Problem) About(id dispatcherd.JobID) *Problem {
	if id > 0 {
		p.Job = id
	}
	return p
}

// retryPause is the time after which a caller may try again.
const retryPause = time.Second

// Retryable tells the caller to try again.
func (p *Problem) Retryable() *Problem {
	p.RetryAfterMS = retryPause.Milliseconds()
	return p
}

// Kind is a problem without its details.
type Kind struct {
	Name   string
	Status int // of HTTP
	Title  string
}

// Of returns a problem of this kind.
func (k Kind) Of(detail string) *Problem {
	return &Problem{Type: Namespace + k.Name, Title: k.Title, Status: k.Status, Detail: detail}
}

// Is reports whether an error is a problem of this kind.
func (k Kind) Is(err error) bool {
	p, ok := errors.AsType[*Problem](err)
	return ok && p.Name() == k.Name
}

// RefusalError is an error of a package that knows nothing of HTTP except the kind of problem that the error is.
type RefusalError struct {
	Kind Kind
	text string
}

// Refuses returns an error whose problem has this kind. The detail of the problem is the text of the error that wraps it.
func (k Kind) Refuses(text string) *RefusalError { return &RefusalError{k, text} }

// Error returns the text.
func (r *RefusalError) Error() string { return r.text }

// Kinds lists every kind that is sent.
var Kinds []Kind

// kind returns a kind, which [Kinds] then lists.
func kind(name string, status int, title string) Kind {
	Kinds = append(Kinds, Kind{name, status, title})
	return Kinds[len(Kinds)-1]
}

// The kinds that are sent. Their names never change.
var (
	InvalidRequest   = kind("invalid-request", http.StatusBadRequest, "The request is not understood")
	InvalidJob       = kind("invalid-job", http.StatusUnprocessableEntity, "What was sent is no job")
	BadLines         = kind("bad-lines", http.StatusUnprocessableEntity, "Lines of the upload are no jobs; nothing was inserted")
	Unauthorized     = kind("unauthorized", http.StatusUnauthorized, "A valid bearer token is needed")
	ForeignOrigin    = kind("foreign-origin", http.StatusForbidden, "Web pages of other origins are not allowed")
	Forbidden        = kind("forbidden", http.StatusForbidden, "This user may not use jobs of the type")
	NotFound         = kind("not-found", http.StatusNotFound, "There is no such thing")
	MethodNotAllowed = kind("method-not-allowed", http.StatusMethodNotAllowed, "The method does not apply here")
	Conflict         = kind("conflict", http.StatusConflict, "The state of the row forbids it")
	UnexpectedCount  = kind("unexpected-count", http.StatusConflict, "The filter selects another number of elements than expected")
	TooLarge         = kind("too-large", http.StatusRequestEntityTooLarge, "The body is too large")
	UnsupportedMedia = kind("unsupported-media-type", http.StatusUnsupportedMediaType, "The body has a media type that is not supported")
	KeyReused        = kind("idempotency-key-reused", http.StatusUnprocessableEntity, "The Idempotency-Key belongs to another request")
	JobFailed        = kind("job-failed", http.StatusUnprocessableEntity, "The job failed")
	JobCancelled     = kind("job-cancelled", http.StatusConflict, "The job was cancelled")
	QueueFull        = kind("queue-full", http.StatusTooManyRequests, "Too many requests wait already")
	DeadlinePassed   = kind("deadline-passed", http.StatusGatewayTimeout, "The deadline passed before the answer")
	NoSlot           = kind("no-slot-supports-type", http.StatusServiceUnavailable, "No slot supports the type")
	Paused           = kind("type-paused", http.StatusServiceUnavailable, "The type is paused")
	Stopping         = kind("stopping", http.StatusServiceUnavailable, "The dispatcher is about to stop")
	Unavailable      = kind("unavailable", http.StatusServiceUnavailable, "Something that is needed is not available")
	Internal         = kind("internal", http.StatusInternalServerError, "The dispatcher has an internal error")
)

// Lookup returns the kind with that name. An unknown name is a kind of its own.
func Lookup(name string) Kind {
	for _, k := range Kinds {
		if k.Name == name {
			return k
		}
	}
	return Kind{name, http.StatusInternalServerError, name}
}

// CallerGone is never sent, because the caller has disconnected. Its status is for metrics.
var CallerGone = Kind{"caller-gone", 499, "The caller disconnected"}
