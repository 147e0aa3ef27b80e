package concurrency

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Articles 4 and 5: many items, at most N calls at a time. The result of an entry is stored at the
// place of that entry.
func TestMapLimitKeepsLimitAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := make([]int, 100)
		for i := range items {
			items[i] = i
		}
		var running, most atomic.Int64
		began := time.Now()
		doubled, err := MapLimit(t.Context(), items, 10, func(_ context.Context, n int) (int, error) {
			now := running.Add(1)
			defer running.Add(-1)
			most.Store(max(most.Load(), now))
			time.Sleep(time.Second)
			return 2 * n, nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 10, most.Load())
		require.Equal(t, 10*time.Second, time.Since(began))
		for i, n := range doubled {
			require.Equal(t, 2*i, n)
		}
	})
}

// Article 5, "mapLimit": after an error no further call begins.
func TestFirstErrorStopsMapLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		torn := errors.New("torn")
		var calls atomic.Int64
		_, err := MapLimit(t.Context(), make([]int, 1000), 4, func(ctx context.Context, _ int) (int, error) {
			if calls.Add(1) == 5 {
				return 0, torn
			}
			select {
			case <-time.After(time.Duration(calls.Load()) * time.Second):
				return 0, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		require.ErrorIs(t, err, torn)
		require.LessOrEqual(t, calls.Load(), int64(8), "nothing begins after the error")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = MapLimit(ctx, []int{1}, 1, func(context.Context, int) (int, error) { return 0, nil })
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestMapLimitPanicsInTheCallersGoroutine(t *testing.T) {
	torn := errors.New("torn")
	for name, bad := range map[string]func(context.Context) error{
		"first":          func(context.Context) error { panic(torn) },
		"after an error": func(ctx context.Context) error { <-ctx.Done(); panic(torn) },
	} {
		var others atomic.Int64
		got := panicOf(func() {
			_, _ = MapLimit(t.Context(), []int{0, 1, 2}, 3, func(ctx context.Context, n int) (int, error) {
				if n == 1 {
					return 0, bad(ctx)
				}
				if n == 2 && name != "first" {
					return 0, errors.New("earlier")
				}
				<-ctx.Done()
				others.Add(1)
				return 0, nil
			})
		})
		var p *PanicError
		require.ErrorAs(t, got.(error), &p, name)
		require.ErrorIs(t, p, torn, name)
		require.Contains(t, string(p.Stack), "TestMapLimitPanicsInTheCallersGoroutine", name)
		require.NotZero(t, others.Load(), "they had returned")
	}
}

func TestGoexitInMapLimitIsAnError(t *testing.T) {
	results, err := MapLimit(t.Context(), []int{0, 1, 2}, 2, func(_ context.Context, n int) (int, error) {
		if n == 1 {
			runtime.Goexit()
		}
		return n, nil
	})
	require.ErrorIs(t, err, ErrGoexit)
	require.Nil(t, results)
}
