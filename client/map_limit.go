package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// ErrGoexit is what [MapLimit] returns if fn ended its goroutine with
// runtime.Goexit instead of returning.
var ErrGoexit = errors.New("fn called runtime.Goexit")

// PanicError is what [MapLimit] panics with if fn panics.
type PanicError struct {
	Value any    // what fn panicked with
	Stack []byte // of the goroutine that it ran in
}

// Error tells both.
func (p *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Unwrap returns the value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// MapLimit calls fn for every item, at most limit at a time, in order of the
// items, and returns the results in that order (article 5, "mapLimit"). The
// first error ends it: no further call begins, the context of those under way
// is cancelled, and when they have returned that error is returned. A panic ends
// it likewise; when they have returned it goes on in the goroutine of the caller,
// as a [*PanicError], also if an error came first.
func MapLimit[T, R any](ctx context.Context, items []T, limit int, fn func(ctx context.Context, item T) (R, error)) ([]R, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	places := NewSemaphore(limit)
	results := make([]R, len(items))
	var calls sync.WaitGroup
	ends := mapEnds{cancel: cancel}
	for i, item := range items {
		if places.Acquire(ctx, 1) != nil {
			break // ctx says why
		}
		calls.Go(func() {
			defer places.Release(1)
			ends.guard(func() (err error) {
				results[i], err = fn(ctx, item)
				return err
			})
		})
	}
	calls.Wait()
	if p := ends.panicked.Load(); p != nil {
		panic(p)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return results, nil
}

// mapEnds are the ways in which calls of a MapLimit may go wrong.
type mapEnds struct {
	cancel   context.CancelCauseFunc // the first cause counts
	panicked atomic.Pointer[PanicError]
}

// guard notes how a call goes wrong, also if it does not return.
func (m *mapEnds) guard(call func() error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			p := &PanicError{Value: v, Stack: debug.Stack()}
			m.panicked.CompareAndSwap(nil, p)
			m.cancel(p)
			return
		}
		m.cancel(ErrGoexit)
	}()
	err := call()
	returned = true
	if err != nil {
		m.cancel(err)
	}
}
