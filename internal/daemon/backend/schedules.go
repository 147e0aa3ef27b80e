package backend

import (
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/schedule/scheduleapi"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// Schedules implements api.Backend.
func (b *Backend) Schedules() scheduleapi.Table {
	return scheduleTable{schedulestore.Schedules{DB: b.Pool}}
}

// scheduleTable executes the operations for callers, with a time limit, and turns their errors
// into problems.
type scheduleTable struct{ table schedulestore.Schedules }

func withinSchedules[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	result, err := within(ctx, do)
	var noTick *schedulestore.RefusedError
	var invalid *ondemand.InvalidError
	switch {
	case errors.Is(err, schedulestore.ErrNotFound):
		err = problem.NotFound.Of(err.Error())
	case errors.Is(err, schedulestore.ErrInvalid), errors.As(err, &invalid):
		err = problem.InvalidRequest.Of(err.Error())
	case errors.As(err, &noTick), errors.Is(err, schedulestore.ErrEdited), errors.Is(err, schedulestore.ErrFull):
		err = problem.Conflict.Of(err.Error())
	}
	return result, err
}

// change is withinSchedules for an operation without result.
func change(ctx context.Context, name string, do func(context.Context, string) error) error {
	_, err := withinSchedules(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx, name) })
	return err
}

// List implements scheduleapi.Table.
func (s scheduleTable) List(ctx context.Context, after string, limit int) ([]contract.Schedule, error) {
	return withinSchedules(ctx, func(ctx context.Context) ([]contract.Schedule, error) { return s.table.List(ctx, after, limit) })
}

// Get implements scheduleapi.Table.
func (s scheduleTable) Get(ctx context.Context, name string) (contract.Schedule, error) {
	return withinSchedules(ctx, func(ctx context.Context) (contract.Schedule, error) { return s.table.Get(ctx, name) })
}

// Set implements scheduleapi.Table.
func (s scheduleTable) Set(ctx context.Context, v contract.Schedule) (bool, error) {
	return withinSchedules(ctx, func(ctx context.Context) (bool, error) { return s.table.Set(ctx, v) })
}

// Remove implements scheduleapi.Table.
func (s scheduleTable) Remove(ctx context.Context, name string) error {
	return change(ctx, name, s.table.Remove)
}

// RemoveVersion implements scheduleapi.Table.
func (s scheduleTable) RemoveVersion(ctx context.Context, name string, version int64) error {
	return change(ctx, name, func(ctx context.Context, name string) error { return s.table.RemoveVersion(ctx, name, version) })
}

// Pause implements scheduleapi.Table.
func (s scheduleTable) Pause(ctx context.Context, name string) error {
	return change(ctx, name, s.table.Pause)
}

// Resume implements scheduleapi.Table.
func (s scheduleTable) Resume(ctx context.Context, name string) error {
	return change(ctx, name, s.table.Resume)
}

// Run implements scheduleapi.Table.
func (s scheduleTable) Run(ctx context.Context, name, key string, force bool) (contract.MadeTick, error) {
	return withinSchedules(ctx, func(ctx context.Context) (contract.MadeTick, error) { return s.table.Run(ctx, name, key, force) })
}

// Backfill implements scheduleapi.Table.
func (s scheduleTable) Backfill(ctx context.Context, name string, from, to time.Time, overlap string) (map[string]int, error) {
	return withinSchedules(ctx, func(ctx context.Context) (map[string]int, error) {
		return s.table.Backfill(ctx, name, from, to, overlap)
	})
}

// CountBackfill implements scheduleapi.Table.
func (s scheduleTable) CountBackfill(ctx context.Context, name string, from, to time.Time) (map[string]int, error) {
	return withinSchedules(ctx, func(ctx context.Context) (map[string]int, error) { return s.table.CountBackfill(ctx, name, from, to) })
}

// Ticks implements scheduleapi.Table.
func (s scheduleTable) Ticks(ctx context.Context, name string, before contract.Tick, limit int) ([]contract.Tick, error) {
	return withinSchedules(ctx, func(ctx context.Context) ([]contract.Tick, error) { return s.table.Ticks(ctx, name, before, limit) })
}
