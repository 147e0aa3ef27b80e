package worker

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lazyContext is the context of one execution. Most handlers never use their
// context, so its channel, timer and registration with the parent context are
// created on first use.
type lazyContext struct {
	timeout  time.Duration // timeout of the attempt; 0 = none
	deadline time.Time     // set before the handler is called, if there is a timeout

	mu      sync.Mutex
	full    context.Context // nil until first use
	stop    context.CancelCauseFunc
	release context.CancelFunc // stops the timer of full
	ended   error              // the cause given to cancel; nil if only the timeout expired
}

// start starts the timeout.
func (c *lazyContext) start() {
	if c.timeout > 0 {
		c.deadline = time.Now().Add(c.timeout)
	}
}

// cancel ends the context. The first cause counts.
func (c *lazyContext) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = cause
	}
	if c.full != nil {
		c.stop(cause)
	}
}

// free releases the timer when the handler has returned.
func (c *lazyContext) free() {
	c.cancel(context.Canceled)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.release != nil {
		c.release()
	}
}

// cause returns the cause given to cancel, or nil.
func (c *lazyContext) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// timeoutCause is the cause when the timeout has expired.
func (c *lazyContext) timeoutCause() error {
	if c.timeout <= 0 {
		return ErrTimeout // only the dispatcher knows the duration of the timeout
	}
	return fmt.Errorf("%w: %v", ErrTimeout, c.timeout)
}

// allocate returns the full context.
func (c *lazyContext) allocate() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full != nil {
		return c.full
	}
	c.full, c.stop = context.WithCancelCause(context.Background())
	if c.timeout > 0 {
		c.full, c.release = context.WithDeadlineCause(c.full, c.deadline, c.timeoutCause())
	}
	if c.ended != nil {
		c.stop(c.ended)
		if c.release != nil {
			c.release()
		}
	}
	return c.full
}

// Deadline implements context.Context.
func (c *lazyContext) Deadline() (time.Time, bool) { return c.deadline, c.timeout > 0 }

// Done implements context.Context.
func (c *lazyContext) Done() <-chan struct{} { return c.allocate().Done() }

// Value implements context.Context. context.Cause and derived contexts find the
// full context through it.
func (c *lazyContext) Value(key any) any { return c.allocate().Value(key) }

// Err implements context.Context.
func (c *lazyContext) Err() error {
	c.mu.Lock()
	unused := c.full == nil && c.ended == nil
	c.mu.Unlock()
	if unused && (c.timeout <= 0 || time.Now().Before(c.deadline)) {
		return nil
	}
	return c.allocate().Err()
}
