package concurrency

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Article 4, "natural backpressure": a producer blocks while the consumers are behind, so that no
// queue grows without bound.
func TestGoBlocksTheProducerWhileTheLimitIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, began := NewGroup(t.Context(), 3), time.Now()
		var starts []time.Duration
		var running, most atomic.Int64
		for range 7 {
			require.True(t, g.Go(func(context.Context) error {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Second)
				running.Add(-1)
				return nil
			}))
			starts = append(starts, time.Since(began)/time.Second)
		}
		require.NoError(t, g.Wait())
		require.Equal(t, []time.Duration{0, 0, 0, 1, 1, 1, 2}, starts)
		require.EqualValues(t, 3, most.Load())
		require.Panics(t, func() { NewGroup(t.Context(), 0) })
	})
}

// Article 4, "structured concurrency": when a scope exits, all operations in it are cancelled and
// cleaned up, and none outlives it. Article 5: no operation begins after the first error, and
// that error is returned.
func TestFirstErrorCancelsTheGroupAndNoFunctionOutlivesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		torn := errors.New("torn")
		g, began := NewGroup(t.Context(), 3), time.Now()
		var cleaned atomic.Int64
		for n := range 2 {
			g.Go(func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Duration(n+1) * time.Minute) // to clean up
				cleaned.Add(1)
				return ctx.Err()
			})
		}
		g.Go(func(context.Context) error {
			time.Sleep(time.Second)
			return torn
		})
		require.False(t, g.Go(func(context.Context) error { panic("it begins after the error") }))
		require.Equal(t, time.Second, time.Since(began), "Go waited for the error only")
		require.Equal(t, torn, g.Wait())
		require.EqualValues(t, 2, cleaned.Load())
		require.Equal(t, time.Second+2*time.Minute, time.Since(began))
		require.Equal(t, torn, g.Wait(), "a second time")
	})
}

// Defect of article 4: to cancel a CancellablePromise does not cancel its children. Here the end of a
// context reaches the functions of all groups below it, with its cause.
func TestCancellationReachesTheFunctionsOfNestedGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		outer := NewGroup(ctx, 1)
		outer.Go(func(ctx context.Context) error {
			inner := NewGroup(ctx, 1)
			inner.Go(func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			return inner.Wait()
		})
		synctest.Wait()
		cancel(stop)
		require.Equal(t, stop, outer.Wait())
	})
}

// A Go that waits for a place ends with the context, even if the running functions ignore it.
func TestGoWaitsNoLongerThanTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g, began := NewGroup(ctx, 1), time.Now()
		g.Go(func(context.Context) error {
			time.Sleep(time.Hour)
			return nil
		})
		require.False(t, g.Go(func(context.Context) error { return nil }))
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, g.Wait(), context.DeadlineExceeded, "one function did not begin")
		require.Equal(t, time.Hour, time.Since(began))
	})
}

// If all functions have succeeded, a later end of the context is no error. Wait itself ends the
// context of the group, which releases its resources.
func TestWaitReturnsNilIfAllFunctionsSucceeded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := NewGroup(ctx, 1)
	g.Go(func(context.Context) error { cancel(); return nil })
	require.NoError(t, g.Wait())
	g = NewGroup(t.Context(), 1)
	var errInside func() error
	g.Go(func(ctx context.Context) error { errInside = ctx.Err; return nil })
	require.NoError(t, g.Wait())
	require.ErrorIs(t, errInside(), context.Canceled)
	require.False(t, g.Go(func(context.Context) error { return nil }), "after Wait")
}

func TestPanicOfAGroupReachesTheCallerOfWait(t *testing.T) {
	for _, early := range []error{nil, errors.New("early")} {
		torn := errors.New("torn")
		g := NewGroup(t.Context(), 2)
		both := make(chan struct{})
		g.Go(func(ctx context.Context) error {
			<-both // an early error would keep the other function from starting
			if early == nil {
				<-ctx.Done() // the panic ends it
			}
			return early
		})
		g.Go(func(ctx context.Context) error {
			close(both)
			if early != nil {
				<-ctx.Done()
			}
			panic(torn)
		})
		var p *PanicError
		require.ErrorAs(t, panicOf(func() { _ = g.Wait() }).(error), &p)
		require.ErrorIs(t, p, torn)
		require.Contains(t, string(p.Stack), "TestPanicOfAGroupReachesTheCallerOfWait")
	}
}

// panicOf returns the value that f panics with.
func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestGoexitInAGroupIsAnError(t *testing.T) {
	g := NewGroup(t.Context(), 1)
	g.Go(func(context.Context) error { runtime.Goexit(); return nil })
	require.ErrorIs(t, g.Wait(), ErrGoexit)
}

// The reference model: each function begins at the earliest end of the limit's places, unless a
// function failed before. Durations are random nanoseconds, so no two ends coincide.
func TestGroupEqualsTheReferenceModel(t *testing.T) {
	failures := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		limit, count := 1+rng.IntN(5), rng.IntN(30)
		durations, errs := make([]time.Duration, count), make([]error, count)
		for i := range count {
			durations[i] = time.Duration(1 + rng.Int64N(int64(time.Hour)))
			if rng.IntN(20) == 0 {
				errs[i] = errors.New("torn")
			}
		}
		want, wantErr := startsOfModel(limit, durations, errs)
		if wantErr != nil {
			failures++
		}
		synctest.Test(t, func(t *testing.T) {
			var got []time.Duration
			g, began := NewGroup(t.Context(), limit), time.Now()
			for i := range count {
				if !g.Go(func(context.Context) error {
					time.Sleep(durations[i])
					return errs[i]
				}) {
					break
				}
				got = append(got, time.Since(began))
			}
			require.Equal(t, wantErr, g.Wait(), "seed %d", seed)
			require.Equal(t, want, got, "seed %d", seed)
		})
	}
	require.Greater(t, failures, 50)
}

func startsOfModel(limit int, durations []time.Duration, errs []error) (starts []time.Duration, first error) {
	places := make([]time.Duration, limit) // when each is free
	failed := time.Duration(1<<63 - 1)
	for i, d := range durations {
		place := slices.Index(places, slices.Min(places))
		if places[place] >= failed {
			break
		}
		starts = append(starts, places[place])
		places[place] += d
		if errs[i] != nil && places[place] < failed {
			failed, first = places[place], errs[i]
		}
	}
	return starts, first
}
