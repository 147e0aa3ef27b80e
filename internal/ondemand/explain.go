package ondemand

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Explain returns a copy of the problem that is sent to a caller for an error. It does
// not contain the text of an unknown error, which may contain internal details.
func Explain(err error) *rest.Problem {
	known, ok := errors.AsType[*rest.Problem](err)
	switch {
	case ok:
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		known = ErrUnavailable
	default:
		known = rest.Internal.Of("the log of the dispatcher says more")
	}
	p := *known
	return &p
}

// pausePatience is when a caller may try again after a pause without an end has refused its request.
const pausePatience = time.Minute

// problems are the kinds of the problems of answers that are not Done.
var problems = map[AnswerKind]rest.Kind{
	Failed: rest.JobFailed, Late: rest.DeadlinePassed, Unsupported: rest.NoSlot, Busy: rest.QueueFull, Stopping: rest.Stopping,
	Paused: rest.Paused, Cancelled: rest.JobCancelled,
}

// ExplainAnswer returns the problem of an answer that is not Done.
func ExplainAnswer(a *Answer) *rest.Problem {
	p := cmp.Or(problems[a.Kind], rest.Internal).Of(a.Reason)
	p.Via = a.Via
	switch a.Kind {
	case Unsupported:
		p.Detail += ": start a worker for the type, or let the request wait for one " +
			"(wait_for_worker in the request, --wait-for-worker of the command)"
	case Busy, Stopping:
		return p.Retryable()
	case Paused:
		p.RetryAfterMS = cmp.Or(a.Retry, pausePatience).Milliseconds()
	}
	return p
}
