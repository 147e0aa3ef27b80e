package worker

import (
	"errors"
	"time"
)

// Why the context of an execution ended; compare with errors.Is and
// context.Cause.
var (
	ErrCancelled = errors.New("the job was cancelled")
	ErrStale     = errors.New("somebody else has the job, or it is over")
	ErrTimeout   = errors.New("the job's time is up")
	ErrLost      = errors.New("the connection to the dispatcher is lost")
	ErrStopping  = errors.New("the worker stops")
)

// permanentError says that another try is useless.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent wraps err so that the job fails for good, whatever tries it has
// left. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

// delayedError names the delay before the next try.
type delayedError struct {
	error
	delay time.Duration
}

func (e delayedError) Unwrap() error { return e.error }

// RetryAfter wraps err so that the job is tried again after d, in whole
// milliseconds, if it has tries left; more than a day counts as a day. With less
// than a millisecond it is tried after the dispatcher's own backoff, as without.
// RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return delayedError{err, d}
}
