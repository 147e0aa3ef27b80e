package worker

import (
	"errors"
	"time"
)

// The causes of the end of an execution's context. Compare with errors.Is and
// context.Cause.
var (
	ErrCancelled = errors.New("the job must stop")
	ErrStale     = errors.New("another attempt has the job, or the job has ended")
	ErrTimeout   = errors.New("the job's timeout has expired")
	ErrLost      = errors.New("the connection to the dispatcher is lost")
	ErrStopping  = errors.New("the worker stops")
)

// permanentError marks an error after which the job is not retried.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent wraps err so that the job fails without further attempts.
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

// delayedError sets the delay before the next attempt.
type delayedError struct {
	error
	delay time.Duration
}

func (e delayedError) Unwrap() error { return e.error }

// RetryAfter wraps err so that the job is retried after d if it has attempts left. d is
// rounded down to milliseconds, and more than a day counts as a day. If d is less than
// a millisecond, the backoff of the dispatcher applies. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return delayedError{err, d}
}
