package backend

import (
	"context"
	"errors"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowapi"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/joblines"
)

// Flows implements api.Backend.
func (b *Backend) Flows() flowapi.Tables { return flowTables{b} }

type flowTables struct{ b *Backend }

// As implements flowapi.Tables.
func (f flowTables) As(by string) flowapi.Table {
	return flowTable{f.b, joins.Joins{DB: f.b.Pool, By: by}}
}

// Types implements flowapi.Tables.
func (f flowTables) Types(ctx context.Context, ids []int64) ([]string, error) {
	return withinJoins(ctx, func(ctx context.Context) ([]string, error) { return joins.Joins{DB: f.b.Pool}.Types(ctx, ids) })
}

// flowTable executes the operations for callers, with a time limit, and turns their errors into problems.
type flowTable struct {
	b     *Backend
	joins joins.Joins
}

func withinJoins[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	result, err := within(ctx, do)
	if refused, ok := errors.AsType[*joins.RefusedError](err); ok {
		kind := problem.InvalidRequest
		switch {
		case errors.Is(refused, joins.ErrNotFound):
			kind = problem.NotFound
		case errors.Is(refused, joins.ErrConflict):
			kind = problem.Conflict
		}
		err = kind.Of(refused.Error())
	}
	return result, err
}

// List implements flowapi.Table.
func (f flowTable) List(ctx context.Context, filter contract.BatchFilter) ([]contract.Batch, error) {
	return withinJoins(ctx, func(ctx context.Context) ([]contract.Batch, error) { return f.joins.List(ctx, filter) })
}

// on executes an operation on a batch or flow.
func on[T any](ctx context.Context, id dispatcherd.JobID, do func(context.Context, dispatcherd.JobID) (T, error)) (T, error) {
	return withinJoins(ctx, func(ctx context.Context) (T, error) { return do(ctx, id) })
}

// Get implements flowapi.Table.
func (f flowTable) Get(ctx context.Context, id dispatcherd.JobID) (contract.Batch, error) {
	return on(ctx, id, f.joins.Get)
}

// Flow implements flowapi.Table.
func (f flowTable) Flow(ctx context.Context, id dispatcherd.JobID) (contract.Flow, error) {
	return on(ctx, id, f.joins.Flow)
}

// Open implements flowapi.Table.
func (f flowTable) Open(ctx context.Context, b contract.NewBatch) (dispatcherd.JobID, error) {
	return withinJoins(ctx, func(ctx context.Context) (dispatcherd.JobID, error) { return f.joins.Open(ctx, b) })
}

// Seal implements flowapi.Table.
func (f flowTable) Seal(ctx context.Context, id dispatcherd.JobID) (contract.Sealed, error) {
	return on(ctx, id, f.joins.Seal)
}

// InsertFlow implements flowapi.Table.
func (f flowTable) InsertFlow(ctx context.Context, document []byte) (contract.InsertedFlow, error) {
	inserted, err := withinJoins(ctx, func(ctx context.Context) (contract.InsertedFlow, error) { return f.joins.InsertFlow(ctx, document) })
	if err == nil {
		f.b.Loop.Notify()
	}
	return inserted, err
}

// Cancel implements flowapi.Table.
func (f flowTable) Cancel(ctx context.Context, id dispatcherd.JobID) (contract.CancelledTree, error) {
	return on(ctx, id, f.joins.Cancel)
}

// Retry implements flowapi.Table.
func (f flowTable) Retry(ctx context.Context, id dispatcherd.JobID) (contract.RetriedTree, error) {
	retried, err := on(ctx, id, f.joins.Retry)
	if err == nil {
		f.b.Loop.Notify()
	}
	return retried, err
}

// Repair implements flowapi.Table.
func (f flowTable) Repair(ctx context.Context, id dispatcherd.JobID) (int, error) {
	return on(ctx, id, f.joins.Repair)
}

// insertUnique inserts a job unless another one has its unique key.
func (b *Backend) insertUnique(ctx context.Context, job *joblines.Job) (id dispatcherd.JobID, inserted bool, err error) {
	id, err = withinJoins(ctx, func(ctx context.Context) (dispatcherd.JobID, error) {
		var id dispatcherd.JobID
		var err error
		id, inserted, err = job.InsertUnique(ctx, b.Pool)
		return id, err
	})
	return id, inserted, err
}

// permitParent returns the error of permit for the callback of a batch, whose run a member delays.
func (b *Backend) permitParent(ctx context.Context, id dispatcherd.JobID, permit func(string) error) error {
	return flowapi.PermitParent(ctx, flowTables{b}, id, permit)
}

// whyWaiting explains a job that waits for others.
func (b *Backend) whyWaiting(ctx context.Context, job *contract.Job) (httpapi.Why, error) {
	why := httpapi.Why{
		Job:      job.ID,
		Type:     job.Type,
		Mode:     dispatcherd.Queued.String(),
		Priority: job.Priority,
		Status:   job.Status,
		Reasons:  []string{httpapi.ReasonDependencies},
	}
	waits, err := on(ctx, job.ID, joins.Joins{DB: b.Pool}.Waits)
	if why.WaitsFor = waits; waits != nil && waits.Batch && waits.Left == nil {
		why.Reasons = []string{httpapi.ReasonUnsealed}
	}
	return why, err
}
