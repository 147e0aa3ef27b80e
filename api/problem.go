package api

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// problemNamespace is what every problem type begins with. The rest is stable
// and described in docs/api.md.
const problemNamespace = "urn:dispatcherd:problem:"

// Problem is an error as callers see it (RFC 9457).
type Problem struct { //nolint:errname // RFC 9457 calls it a problem
	Type         string            `doc:"Stable name of the kind of problem; see docs/api.md." json:"type"`
	Title        string            `json:"title"`
	Status       int               `json:"status"`
	Detail       string            `json:"detail,omitempty"`
	Job          dispatcherd.JobID `doc:"The row it is about."                                 json:"job,omitempty"`
	Line         int               `doc:"The line of an upload it is about."                   json:"line,omitempty"`
	RetryAfterMS int64             `json:"retry_after_ms,omitempty"`
	Problems     []Problem         `doc:"One for each bad line of an upload."                  json:"problems,omitempty"`
	Bad          int               `doc:"Bad lines of an upload, named or not."                json:"bad,omitempty"`
}

// Error is the detail.
func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// kindOfProblem is a problem without its particulars.
type kindOfProblem struct {
	name   string
	status int
	title  string
}

// The problems. Names never change; docs/api.md has a section for each.
var (
	invalidRequest   = kindOfProblem{"invalid-request", http.StatusBadRequest, "The request is not understood"}
	invalidJob       = kindOfProblem{"invalid-job", http.StatusUnprocessableEntity, "What was sent is no job"}
	badLines         = kindOfProblem{"bad-lines", http.StatusUnprocessableEntity, "Lines of the upload are no jobs; nothing was inserted"}
	unauthorized     = kindOfProblem{"unauthorized", http.StatusUnauthorized, "A valid bearer token is needed"}
	foreignOrigin    = kindOfProblem{"foreign-origin", http.StatusForbidden, "Web pages of other origins are not let in"}
	notFound         = kindOfProblem{"not-found", http.StatusNotFound, "There is no such thing"}
	methodNotAllowed = kindOfProblem{"method-not-allowed", http.StatusMethodNotAllowed, "The method does not apply here"}
	notAcceptable    = kindOfProblem{"not-acceptable", http.StatusNotAcceptable, "None of the accepted media types can be sent"}
	conflict         = kindOfProblem{"conflict", http.StatusConflict, "The state of the job forbids it"}
	tooLarge         = kindOfProblem{"too-large", http.StatusRequestEntityTooLarge, "The body is too large"}
	unsupportedMedia = kindOfProblem{"unsupported-media-type", http.StatusUnsupportedMediaType, "The body has a media type that is not taken"}
	keyReused        = kindOfProblem{"idempotency-key-reused", http.StatusUnprocessableEntity, "The Idempotency-Key belongs to another request"}
	jobFailed        = kindOfProblem{"job-failed", http.StatusUnprocessableEntity, "The job failed"}
	jobCancelled     = kindOfProblem{"job-cancelled", http.StatusConflict, "The job was cancelled"}
	queueFull        = kindOfProblem{"queue-full", http.StatusTooManyRequests, "Too many requests wait already"}
	deadlinePassed   = kindOfProblem{"deadline-passed", http.StatusGatewayTimeout, "The deadline passed before the answer"}
	noSlot           = kindOfProblem{"no-slot-supports-type", http.StatusServiceUnavailable, "No slot supports the type"}
	stopping         = kindOfProblem{"stopping", http.StatusServiceUnavailable, "The dispatcher is about to stop"}
	unavailable      = kindOfProblem{"unavailable", http.StatusServiceUnavailable, "Something that is needed does not answer"}
	internal         = kindOfProblem{"internal", http.StatusInternalServerError, "The dispatcher made a mistake"}
)

// callerGone is never read by anybody; its status is what metrics show.
var callerGone = kindOfProblem{"caller-gone", 499, "The caller hung up"}

// problemKinds lists them for docs/api.md, which has a section for each.
var problemKinds = []kindOfProblem{
	invalidRequest, invalidJob, badLines, unauthorized, foreignOrigin, notFound, methodNotAllowed, notAcceptable, conflict, tooLarge,
	unsupportedMedia, keyReused, jobFailed, jobCancelled, queueFull, deadlinePassed, noSlot, stopping, unavailable, internal,
}

func (k kindOfProblem) of(detail string) *Problem {
	return &Problem{Type: problemNamespace + k.name, Title: k.title, Status: k.status, Detail: detail}
}

// retryPause is when another attempt makes sense after an answer that says "not
// now".
const retryPause = time.Second

// later says that another attempt makes sense.
func (p *Problem) later() *Problem {
	p.RetryAfterMS = retryPause.Milliseconds()
	return p
}

// write sends a problem. What it is about was not started, or has ended.
func (p *Problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	nameRow(h, p.Job)
	if p.RetryAfterMS > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(float64(p.RetryAfterMS)/1000)), 10))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="dispatcherd"`)
	}
	if p.Status == callerGone.status {
		h.Set("Connection", "close") // what he has sent ahead goes with him
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(problemJSON(p), '\n')) // the caller is gone; nobody is left to tell
}

// problemOf turns an error into what is told about it. Errors of which nothing
// is known keep their text to themselves: it may hold what is nobody's business.
func problemOf(err error) *Problem {
	var p *Problem
	var invalid *InvalidError
	var clash *ConflictError
	var long *http.MaxBytesError
	var line *LongLineError
	var undecided *UndecidedError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &undecided):
		p = problemOf(undecided.Err)
		p.Detail += "; whether the row was written is not known: who has called with an Idempotency-Key finds out by calling again"
		return p
	case errors.As(err, &line):
		p = tooLarge.of(line.Error())
		p.Line = line.Line
		return p
	case errors.As(err, &invalid):
		return invalidJob.of(invalid.Error())
	case errors.As(err, &clash):
		return conflict.of(clash.Error())
	case errors.As(err, &long):
		return tooLarge.of("at most " + strconv.FormatInt(long.Limit, 10) + " bytes are taken")
	case errors.Is(err, ErrNotFound):
		return notFound.of("no job has that id")
	case errors.Is(err, ErrCrowded):
		return queueFull.of(ErrCrowded.Error()).later()
	case errors.Is(err, ErrStopping):
		return stopping.of(ErrStopping.Error()).later()
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unavailable.of("Postgres does not answer").later()
	}
	return internal.of("the log of the dispatcher says more")
}

// problemOfAnswer turns an answer that is no result into a problem.
func problemOfAnswer(a *Answer) *Problem {
	switch a.Kind {
	case Failed:
		return jobFailed.of(a.Reason)
	case Late:
		return deadlinePassed.of(a.Reason)
	case Unsupported:
		return noSlot.of(a.Reason + "; wait_for_worker is how long a request waits for one")
	case Busy:
		return queueFull.of(a.Reason).later()
	case Stopping:
		return stopping.of(a.Reason).later()
	case Cancelled:
		return jobCancelled.of(a.Reason)
	}
	return internal.of("an answer of an unknown kind")
}
