package jobs

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// remote are the operations on jobs of a dispatcher.
type remote struct{ at *ask.Dispatcher }

func (r remote) list(ctx context.Context, q httpapi.JobQuery) (contract.JobPage, error) {
	return ask.Page[contract.JobPage](ctx, r.at, "/v1/jobs", q)
}

func (r remote) get(ctx context.Context, id dispatcherd.JobID) (job contract.Job, err error) {
	err = about(id, r.at.JSON(ctx, rest.JobPath(id), &job))
	return job, err
}

func (r remote) cancel(ctx context.Context, id dispatcherd.JobID) (dispatcherd.Status, error) {
	var state httpapi.JobState
	err := about(id, r.at.Call(ctx, http.MethodDelete, rest.JobPath(id), nil, &state))
	return state.Status, err
}

func (r remote) retry(ctx context.Context, id dispatcherd.JobID) error {
	return about(id, r.at.Call(ctx, http.MethodPost, rest.JobPath(id)+"/retry", nil, &httpapi.JobState{}))
}

func (r remote) change(ctx context.Context, op contract.Operation, q httpapi.JobChange) (b contract.Bulk, err error) {
	err = r.at.Call(ctx, http.MethodPost, "/v1/jobs/"+string(op)+"?"+rest.Encode(q).Encode(), nil, &b)
	return b, err
}

// count is change without a change.
func (r remote) count(ctx context.Context, op contract.Operation, q httpapi.JobChange) (contract.Bulk, error) {
	q.DryRun, q.Expect = true, nil
	return r.change(ctx, op, q)
}

func (r remote) insert(ctx context.Context, job map[string]any) (inserted httpapi.Inserted, err error) {
	err = r.at.Call(ctx, http.MethodPost, "/v1/jobs", job, &inserted)
	return inserted, err
}

// about names the job that a dispatcher does not have.
func about(id dispatcherd.JobID, err error) error {
	coded, ok := errors.AsType[*exit.Error](err)
	switch {
	case !ok || coded.Code != exit.NotFound:
		return err
	case id.OnDemand():
		return exit.Errorf(exit.NotFound, "request %d is not in memory: it was answered, or this dispatcher never had it", id)
	case strings.HasPrefix(err.Error(), "no such job"): // not the callback of a batch
		return exit.Errorf(exit.NotFound, "job %d: %w", id, err)
	}
	return err
}
