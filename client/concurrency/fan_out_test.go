package concurrency

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Article 5, "errs": the errors of all calls are collected, and all calls have ended before they
// are read. The results stay in the order of the items.
func TestFanOutReturnsEachResultAndEachErrorAfterAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var running, most atomic.Int64
		results, errs := FanOut(t.Context(), []int{0, 1, 2, 3, 4, 5}, 2, func(ctx context.Context, n int) (int, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			if n%2 == 1 {
				return 0, fmt.Errorf("item %d", n)
			}
			return 10 * n, ctx.Err()
		})
		require.Equal(t, 3*time.Second, time.Since(began))
		require.EqualValues(t, 2, most.Load())
		require.Equal(t, []int{0, 0, 20, 0, 40, 0}, results)
		require.EqualError(t, errors.Join(errs...), "item 1\nitem 3\nitem 5")
		require.Len(t, errs, 6)
		require.EqualError(t, errs[3], "item 3")
	})
}

func TestFanOutBeginsNoCallAfterTheEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		results, errs := FanOut(ctx, []int{1, 2, 3, 4}, 1, func(_ context.Context, n int) (int, error) {
			if n == 2 {
				cancel(stop)
			}
			return n, nil
		})
		require.Equal(t, []int{1, 2, 0, 0}, results)
		require.Equal(t, []error{nil, nil, stop, stop}, errs)
	})
}

func TestGoexitInFanOutIsTheErrorOfItsItem(t *testing.T) {
	results, errs := FanOut(t.Context(), []int{1, 2, 3}, 1, func(_ context.Context, n int) (int, error) {
		if n == 2 {
			runtime.Goexit()
		}
		return n, nil
	})
	require.Equal(t, []int{1, 0, 3}, results)
	require.Equal(t, []error{nil, ErrGoexit, nil}, errs)
}

func TestFanOutPanicsInTheCallersGoroutineAfterAllCalls(t *testing.T) {
	torn := errors.New("torn")
	var ended, begun atomic.Int64
	value := panicOf(func() {
		FanOut(t.Context(), make([]int, 100), 2, func(ctx context.Context, _ int) (int, error) {
			if begun.Add(1) == 1 {
				panic(torn)
			}
			<-ctx.Done()
			ended.Add(1)
			return 0, nil
		})
	})
	var p *PanicError
	require.ErrorAs(t, value.(error), &p)
	require.ErrorIs(t, p, torn)
	require.LessOrEqual(t, begun.Load(), int64(2))
	require.Equal(t, begun.Load()-1, ended.Load())
}
