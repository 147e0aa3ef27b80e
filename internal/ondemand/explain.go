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

// ExplainAnswer returns the problem of an answer that is not Done.
func ExplainAnswer(a *Answer) *rest.Problem {
	p := problemOf(a)
	p.Via = a.Via
	return p
}

func problemOf(a *Answer) *rest.Problem {
	switch a.Kind {
	case Failed:
		return rest.JobFailed.Of(a.Reason)
	case Late:
		return rest.DeadlinePassed.Of(a.Reason)
	case Unsupported:
		return rest.NoSlot.Of(a.Reason + ": start a worker for the type, or let the request wait for one " +
			"(wait_for_worker in the request, --wait-for-worker of the command)")
	case Busy:
		return rest.QueueFull.Of(a.Reason).Retryable()
	case Stopping:
		return rest.Stopping.Of(a.Reason).Retryable()
	case Paused:
		p := rest.Paused.Of(a.Reason)
		p.RetryAfterMS = cmp.Or(a.Retry, pausePatience).Milliseconds()
		return p
	case Cancelled:
		return rest.JobCancelled.Of(a.Reason)
	}
	return rest.Internal.Of("an answer of an unknown kind")
}
