package backend

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitapi"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Limits implements api.Backend.
func (b *Backend) Limits() limitapi.Limits { return limitTable{limitstore.Limits{DB: b.Pool}} }

// Keys implements api.Backend.
func (b *Backend) Keys() limitapi.Keys { return keyTable{b, limitstore.Keys{DB: b.Pool}} }

// limitTable executes the operations for callers, with a time limit, and turns their errors into problems.
type limitTable struct{ table limitstore.Limits }

func withinLimits[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	result, err := within(ctx, do)
	var invalid *ondemand.InvalidError
	switch {
	case errors.Is(err, limitstore.ErrNotFound):
		err = problem.NotFound.Of(err.Error())
	case errors.Is(err, limitstore.ErrInvalid), errors.As(err, &invalid):
		err = problem.InvalidRequest.Of(err.Error())
	case errors.Is(err, limitstore.ErrTooMany), errors.Is(err, limitstore.ErrEdited):
		err = problem.Conflict.Of(err.Error())
	}
	return result, err
}

// List implements limitapi.Limits.
func (l limitTable) List(ctx context.Context, after string, most int) ([]contract.Limit, error) {
	return withinLimits(ctx, func(ctx context.Context) ([]contract.Limit, error) { return l.table.List(ctx, after, most) })
}

// Get implements limitapi.Limits.
func (l limitTable) Get(ctx context.Context, key string) (contract.Limit, error) {
	return withinLimits(ctx, func(ctx context.Context) (contract.Limit, error) { return l.table.Get(ctx, key) })
}

// Set implements limitapi.Limits.
func (l limitTable) Set(ctx context.Context, v contract.Limit) (bool, error) {
	return withinLimits(ctx, func(ctx context.Context) (bool, error) { return l.table.Set(ctx, v) })
}

// Remove implements limitapi.Limits.
func (l limitTable) Remove(ctx context.Context, key string) error {
	_, err := withinLimits(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, l.table.Remove(ctx, key) })
	return err
}

// keyTable explains keys by the table, and by the book if this dispatcher is the controller.
type keyTable struct {
	b     *Backend
	table limitstore.Keys
}

// List implements limitapi.Keys. The book does not count paused classes at their keys, so it answers only if the table
// has more than one call may read.
func (k keyTable) List(ctx context.Context, after string, most int) (contract.KeyPage, error) {
	page, err := withinLimits(ctx, func(ctx context.Context) (contract.KeyPage, error) { return k.table.List(ctx, after, most) })
	var states []permits.KeyState
	if err != nil || !page.Incomplete || !k.b.Book(ctx, func(b *permits.Book) { states = b.Keys(after, most+1) }) {
		return page, err
	}
	page.Keys, page.Next, page.Incomplete = []contract.KeySummary{}, "", false
	for i := range states[:min(len(states), most)] {
		s := &states[i]
		page.Keys = append(
			page.Keys,
			contract.KeySummary{
				Key:     s.Name,
				Limit:   limitView(s.Name, &s.Limit),
				Default: s.Limit.Key == "",
				Held:    s.Held,
				Alone:   s.Alone,
				Holders: s.Holders,
				Classes: s.Waiting,
			},
		)
	}
	if len(states) > most {
		page.Next = states[most-1].Name
	}
	return page, nil
}

// limitView converts the limit that applies to a key.
func limitView(key string, l *permits.Limit) contract.Limit {
	v := contract.NewLimit(cmp.Or(l.Key, key))
	if v.Capacity = nil; l.Capacity != permits.Unlimited {
		v.Capacity = new(int(l.Capacity))
	}
	v.Rate, v.Per = int(l.Rate), contract.Duration(time.Duration(l.Per)*time.Microsecond)
	if l.Scope == permits.Dispatcher {
		v.Scope = contract.DispatcherScope
	}
	if l.OnRetry == permits.Wait {
		v.OnRetry = contract.WaitOnRetry
	}
	return v
}

// Show implements limitapi.Keys. The controller knows the order of the waiting jobs; all else is in the table.
func (k keyTable) Show(ctx context.Context, key string) (contract.KeyState, error) {
	s, err := withinLimits(ctx, func(ctx context.Context) (contract.KeyState, error) { return k.table.Show(ctx, key) })
	if err != nil {
		return s, err
	}
	s.Decided = k.b.Book(ctx, func(b *permits.Book) {
		state, _ := b.Key(key)
		if state.Next.ID != 0 {
			s.Next = &contract.KeyWaiter{
				ID:       state.Next.ID,
				Type:     state.NextClass.Type,
				Priority: state.NextClass.Priority,
				Keys:     state.NextClass.Keys,
				RunAt:    time.UnixMicro(state.Next.RunAt),
			}
		}
		if s.Limit.Rate > 0 {
			s.Started = &state.Started
		}
	})
	return s, nil
}
