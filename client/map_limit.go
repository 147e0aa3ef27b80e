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
	Value any    // value of the panic
	Stack []byte // stack of the goroutine that panicked
}

// Error contains the value and the stack.
func (p *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Unwrap returns the value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// MapLimit calls fn for every item in order, with at most limit calls at the same time. It
// returns the results in the order of the items (article 5, "mapLimit"). After the first error no
// further call begins, and the context of the running calls is cancelled. When they have
// returned, MapLimit returns that error. A panic also stops further calls. When the running calls
// have returned, MapLimit panics with a [*PanicError], even if an error came first.
func MapLimit[T, R any](ctx context.Context, items []T, limit int, fn func(ctx context.Context, item T) (R, error)) ([]R, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	places := NewSemaphore(limit)
	results := make([]R, len(items))
	var calls sync.WaitGroup
	ends := mapEnds{cancel: cancel}
	for i, item := range items {
		if places.Acquire(ctx, 1) != nil {
			break // context.Cause(ctx) is returned below
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

// mapEnds records how calls of a MapLimit failed.
type mapEnds struct {
	cancel   context.CancelCauseFunc // the first cause counts
	panicked atomic.Pointer[PanicError]
}

// guard runs a call and records how it failed, even if it panics or ends its goroutine.
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
