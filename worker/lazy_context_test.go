package worker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLazyContextKeepsTheFirstCause(t *testing.T) {
	var c lazyContext
	require.NoError(t, c.Err())
	_, limited := c.Deadline()
	require.False(t, limited)
	c.cancel(ErrStale)
	c.cancel(ErrLost)
	require.ErrorIs(t, c.Err(), context.Canceled)
	require.Equal(t, ErrStale, context.Cause(&c), "the cause is kept even if the context was not used before")
}

func TestLazyContextCancelsDerivedContexts(t *testing.T) {
	var c lazyContext
	child, cancel := context.WithCancel(&c)
	defer cancel()
	var both sync.WaitGroup
	for _, c := range []context.Context{&c, child} {
		both.Go(func() { <-c.Done() })
	}
	c.cancel(ErrCancelled)
	both.Wait()
	require.Equal(t, ErrCancelled, context.Cause(child))
}

func TestLazyContextEndsAtItsDeadline(t *testing.T) {
	c := lazyContext{timeout: time.Nanosecond}
	c.start()
	<-c.Done()
	require.ErrorIs(t, c.Err(), context.DeadlineExceeded)
	require.ErrorIs(t, context.Cause(&c), ErrTimeout)
	require.NoError(t, c.cause(), "the cause is the deadline and not the later cancel")
	c.free()
}

func TestLazyContextEndsWhenItIsFreed(t *testing.T) {
	c := lazyContext{timeout: time.Hour}
	c.start()
	require.NoError(t, c.Err())
	c.free()
	require.ErrorIs(t, c.Err(), context.Canceled)
}
