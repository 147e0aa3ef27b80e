package ondemand

import (
	"context"
	"errors"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
)

// Explain returns the problem that is sent to a caller for an error. The problem does
// not contain the text of an unknown error, which may contain internal details.
func Explain(err error) *problem.Problem {
	var p *problem.Problem
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
		return problem.InvalidJob.Of(invalid.Error())
	case errors.Is(err, ErrStopping):
		return problem.Stopping.Of(ErrStopping.Error()).Retryable()
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problem.Unavailable.Of("Postgres does not answer").Retryable()
	}
	return problem.Internal.Of("the log of the dispatcher says more")
}

// ExplainAnswer returns the problem of an answer that is not Done.
func ExplainAnswer(a *Answer) *problem.Problem {
	switch a.Kind {
	case Failed:
		return problem.JobFailed.Of(a.Reason)
	case Late:
		return problem.DeadlinePassed.Of(a.Reason)
	case Unsupported:
		return problem.NoSlot.Of(a.Reason + "; only slots of this dispatcher count; wait_for_worker is how long a request waits for one")
	case Busy:
		return problem.QueueFull.Of(a.Reason).Retryable()
	case Stopping:
		return problem.Stopping.Of(a.Reason).Retryable()
	case Cancelled:
		return problem.JobCancelled.Of(a.Reason)
	}
	return problem.Internal.Of("an answer of an unknown kind")
}
