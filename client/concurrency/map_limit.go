package concurrency

import "context"

// MapLimit calls fn for every item in order, with at most limit calls at the same time. It
// returns the results in the order of the items (article 5, "mapLimit"). After the first error no
// further call begins, and the context of the running calls is cancelled. When they have
// returned, MapLimit returns that error. A panic also stops further calls. When the running calls
// have returned, MapLimit panics with a [*PanicError], even if an error came first.
func MapLimit[T, R any](ctx context.Context, items []T, limit int, fn func(ctx context.Context, item T) (R, error)) ([]R, error) {
	g := NewGroup(ctx, limit)
	results := make([]R, len(items))
	for i, item := range items {
		if !g.Go(func(ctx context.Context) (err error) {
			results[i], err = fn(ctx, item)
			return err
		}) {
			break
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return results, nil
}
