package concurrency

import "context"

// FanOut calls fn for every item in order, with at most limit calls at the same time, and waits for
// all calls. An error does not affect the other calls, in contrast to [MapLimit]. FanOut returns
// the result and the error of each item, in the order of the items; errors.Join(errs...) is nil if
// all calls succeeded. If ctx ends, no further call begins, and the error of the remaining items is
// the cause of that end. If a call panics, no further call begins, the context of the running calls
// is cancelled, and FanOut panics with a [*PanicError] when they have returned.
//
// FanOut runs in this process. Article 5 collects the errors of all calls in the same way ("errs").
func FanOut[T, R any](
	ctx context.Context,
	items []T,
	limit int,
	fn func(ctx context.Context, item T) (R, error),
) (results []R, errs []error) {
	g := NewGroup(ctx, limit)
	results, errs = make([]R, len(items)), make([]error, len(items))
	for i, item := range items {
		started := g.start(func(ctx context.Context) (err error) {
			results[i], err = fn(ctx, item)
			return err
		}, func(err error) { errs[i] = err })
		if !started {
			errs[i] = context.Cause(g.ctx)
		}
	}
	_ = g.Wait() // the group has no error of its own, but passes on a panic
	return results, errs
}
