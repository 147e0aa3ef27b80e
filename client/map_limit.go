package client

import (
	"context"
	"sync"
)

// MapLimit calls fn for every item, at most limit at a time, in order of the
// items, and returns the results in that order (article 5, "mapLimit"). The
// first error ends it: no further call begins, the context of those under way
// is cancelled, and when they have returned that error is returned.
func MapLimit[T, R any](ctx context.Context, items []T, limit int, fn func(ctx context.Context, item T) (R, error)) ([]R, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	places := NewSemaphore(limit)
	results := make([]R, len(items))
	var calls sync.WaitGroup
	for i, item := range items {
		if places.Acquire(ctx, 1) != nil {
			break // ctx says why
		}
		calls.Go(func() {
			defer places.Release(1)
			var err error
			if results[i], err = fn(ctx, item); err != nil {
				cancel(err) // the first one counts
			}
		})
	}
	calls.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return results, nil
}
