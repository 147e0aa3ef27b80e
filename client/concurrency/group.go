package concurrency

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// ErrGoexit is the error of a function that ended its goroutine with runtime.Goexit instead of
// returning to its [Group], [MapLimit] or [FanOut].
var ErrGoexit = errors.New("fn called runtime.Goexit")

// PanicError is what [Group.Wait], [MapLimit] and [FanOut] panic with if a function panics.
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

// Group runs functions concurrently, and none of them outlives its [Group.Wait] (article 4,
// "structured concurrency"). The first error cancels the context of all functions. In contrast to
// an errgroup.Group, no function begins after the first error, [Group.Go] does not wait longer than
// the context, and a panic reaches the caller of Wait. Use [NewGroup].
type Group struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	places   *Semaphore
	calls    sync.WaitGroup
	failed   atomic.Bool // with the cause of ctx as the error
	panicked atomic.Pointer[PanicError]
}

// NewGroup returns a group whose functions get a context that ends with ctx. At most limit
// functions run at the same time. The limit is at least 1. The caller must call [Group.Wait].
func NewGroup(ctx context.Context, limit int) *Group {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{ctx: ctx, cancel: cancel, places: NewSemaphore(limit)}
}

// Go waits until fewer functions run than the limit, so a fast producer is slowed down (article 4,
// "natural backpressure"). Then it starts f and returns true. If the context of the group ends
// first, it does not start f and returns false: a function has failed, the context given to NewGroup
// has ended, or Wait has returned. A function of the group may call Go, but while it waits for a place
// it occupies its own.
func (g *Group) Go(f func(ctx context.Context) error) bool {
	started := g.start(f, g.fail)
	if !started {
		g.fail(context.Cause(g.ctx))
	}
	return started
}

// Wait waits until all functions have returned, then returns the first error. That is the error of a
// function, [ErrGoexit], or the cause of the end of the context if Go did not start a function. If a
// function has panicked, Wait panics with a [*PanicError], even if an error came first.
func (g *Group) Wait() error {
	g.calls.Wait()
	g.cancel(nil)
	if p := g.panicked.Load(); p != nil {
		panic(p)
	}
	if g.failed.Load() {
		return context.Cause(g.ctx)
	}
	return nil
}

// fail cancels the context with an error that is not nil. The first cause of the context counts: a
// later error may be its consequence.
func (g *Group) fail(err error) {
	if err != nil {
		g.cancel(err)
		g.failed.Store(true)
	}
}

// start runs f on a goroutine of its own when a place is free, and reports its end to ended, unless
// it panics. It returns false if the context ends first.
func (g *Group) start(f func(ctx context.Context) error, ended func(error)) bool {
	if g.places.Acquire(g.ctx, 1) != nil {
		return false
	}
	g.calls.Go(func() {
		defer g.places.Release(1)
		err := ErrGoexit // unless f returns
		defer func() {
			if v := recover(); v != nil {
				p := &PanicError{Value: v, Stack: debug.Stack()}
				g.panicked.CompareAndSwap(nil, p)
				g.cancel(p)
				return
			}
			ended(err)
		}()
		err = f(g.ctx)
	})
	return true
}
