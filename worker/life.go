package worker

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// life is the context of one execution. Most handlers never look at theirs, so
// what a context needs (a channel, a timer, a place in the tree of contexts) is
// made when somebody first asks for it.
type life struct {
	timeout  time.Duration // of the attempt; 0 = none
	deadline time.Time     // set before the handler is called, if there is a timeout

	mu     sync.Mutex
	full   context.Context // nil until it is needed
	cancel context.CancelCauseFunc
	settle context.CancelFunc // stops the timer of full
	ended  error              // why, if it was ended; what passes by itself, the timeout, is not noted
}

// begin starts the clock of the timeout.
func (l *life) begin() {
	if l.timeout > 0 {
		l.deadline = time.Now().Add(l.timeout)
	}
}

// end ends the context; the first cause counts.
func (l *life) end(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = cause
	}
	if l.full != nil {
		l.cancel(cause)
	}
}

// over frees what the context holds, when the handler has returned.
func (l *life) over() {
	l.end(context.Canceled)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settle != nil {
		l.settle()
	}
}

// cause says why the context was ended; nil if it was not.
func (l *life) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// late is the cause when the time is up.
func (l *life) late() error {
	if l.timeout <= 0 {
		return ErrTimeout // the limit is one that only the dispatcher knows
	}
	return fmt.Errorf("%w: %v", ErrTimeout, l.timeout)
}

// whole makes the real context.
func (l *life) whole() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full != nil {
		return l.full
	}
	l.full, l.cancel = context.WithCancelCause(context.Background())
	if l.timeout > 0 {
		l.full, l.settle = context.WithDeadlineCause(l.full, l.deadline, l.late())
	}
	if l.ended != nil {
		l.cancel(l.ended)
		if l.settle != nil {
			l.settle()
		}
	}
	return l.full
}

// Deadline implements context.Context.
func (l *life) Deadline() (time.Time, bool) { return l.deadline, l.timeout > 0 }

// Done implements context.Context.
func (l *life) Done() <-chan struct{} { return l.whole().Done() }

// Value implements context.Context. Through it context.Cause and contexts made
// from this one find the real one.
func (l *life) Value(key any) any { return l.whole().Value(key) }

// Err implements context.Context.
func (l *life) Err() error {
	l.mu.Lock()
	idle := l.full == nil && l.ended == nil
	l.mu.Unlock()
	if idle && (l.timeout <= 0 || time.Now().Before(l.deadline)) {
		return nil
	}
	return l.whole().Err()
}
