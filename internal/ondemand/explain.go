package ondemand

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Explain returns the problem that is sent to a caller for an error. The problem does
// not contain the text of an unknown error, which may contain internal details.
func Explain(err error) *rest.Problem {
	var p *rest.Problem
	var invalid *InvalidError
	var undecided *UndecidedError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &undecided):
		p = Explain(undecided.Err)
		p.Detail += "; whether the row was written is not known: a repeated request with the same Idempotency-Key finds out"
		return p
	case errors.As(err, &invalid):
		return rest.InvalidJob.Of(invalid.Error())
	case errors.Is(err, ErrStopping):
		return rest.Stopping.Of(ErrStopping.Error()).Retryable()
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return rest.Unavailable.Of("Postgres does not answer").Retryable()
	}
	return rest.Internal.Of("the log of the dispatcher says more")
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
		return rest.NoSlot.Of(a.Reason + "; only slots of this dispatcher count: start a worker for the type, or let the request wait for one " +
			"(wait_for_worker, --wait-for-worker)")
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
