package httpapi

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// noJob is the detail of the answer that there is no job.
const noJob = "no such job: it was never inserted, or it was removed (--keep-done and --keep-failed of serve)"

// problemOf returns the problem that the API sends for an error.
func problemOf(err error) *problem.Problem {
	var long *http.MaxBytesError
	var count *contract.CountError
	switch {
	case errors.As(err, &count):
		return problem.Conflict.Of(count.Error())
	case errors.As(err, &long):
		return problem.TooLarge.Of("at most " + strconv.FormatInt(long.Limit, 10) + " bytes are accepted")
	case errors.Is(err, ErrNotFound):
		return problem.NotFound.Of(noJob)
	case errors.Is(err, ErrTooManyUploads):
		return problem.QueueFull.Of(ErrTooManyUploads.Error()).Retryable()
	}
	return ondemand.Explain(err)
}

// writeProblem sends a problem.
func writeProblem(w http.ResponseWriter, p *problem.Problem) {
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
	if p.Status == problem.CallerGone.Status {
		h.Set("Connection", "close") // pipelined requests on this connection are dropped
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(problemJSON(p), '\n')) // fails only if the caller has disconnected
}

// problemJSON returns a problem as JSON on one line.
func problemJSON(p *problem.Problem) []byte {
	text, err := json.Marshal(p)
	if err != nil {
		return []byte(`{}`) // encoding numbers and text cannot fail
	}
	return text
}

// nameRow sets the headers that name the row of a response, if there is one.
func nameRow(h http.Header, id dispatcherd.JobID) {
	if id > 0 {
		h.Set("Dispatcherd-Job", strconv.FormatInt(int64(id), 10))
		h.Set("Location", jobPath(id))
	}
}

func jobPath(id dispatcherd.JobID) string { return "/v1/jobs/" + strconv.FormatInt(int64(id), 10) }
