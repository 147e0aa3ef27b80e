package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// remote are the operations on jobs of a dispatcher.
type remote struct{ at *ask.Dispatcher }

func (r remote) list(ctx context.Context, f contract.Filter) (page contract.Page, err error) {
	err = r.at.JSON(ctx, "/v1/jobs?"+queryOf(f).Encode(), &page)
	return page, err
}

func (r remote) get(ctx context.Context, id dispatcherd.JobID) (job contract.Job, err error) {
	err = about(id, r.at.JSON(ctx, jobPath(id), &job))
	return job, err
}

func (r remote) cancel(ctx context.Context, id dispatcherd.JobID) (dispatcherd.Status, error) {
	var state httpapi.JobState
	err := about(id, r.at.Call(ctx, http.MethodDelete, jobPath(id), nil, &state))
	return state.Status, err
}

func (r remote) retry(ctx context.Context, id dispatcherd.JobID) error {
	return about(id, r.at.Call(ctx, http.MethodPost, jobPath(id)+"/retry", nil, &httpapi.JobState{}))
}

func (r remote) change(ctx context.Context, op contract.Operation, f contract.Filter, count int) (b contract.Bulk, err error) {
	query := queryOf(f)
	if count >= 0 {
		query.Set("count", strconv.Itoa(count))
	}
	err = r.at.Call(ctx, http.MethodPost, "/v1/"+string(op)+"?"+query.Encode(), nil, &b)
	return b, err
}

func (r remote) insert(ctx context.Context, job map[string]any) (inserted httpapi.Inserted, err error) {
	err = r.at.Call(ctx, http.MethodPost, "/v1/jobs", job, &inserted)
	return inserted, err
}

func jobPath(id dispatcherd.JobID) string { return fmt.Sprintf("/v1/jobs/%d", id) }

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

// queryOf returns a filter as query parameters.
func queryOf(f contract.Filter) url.Values {
	q := url.Values{}
	set := func(name, value string, given bool) {
		if given {
			q.Set(name, value)
		}
	}
	statuses := make([]string, len(f.Statuses))
	for i, s := range f.Statuses {
		statuses[i] = string(s)
	}
	set("type", f.Type, f.Type != "")
	set("status", strings.Join(statuses, ","), len(statuses) > 0)
	set("since", f.Since.Format(time.RFC3339Nano), !f.Since.IsZero())
	set("until", f.Until.Format(time.RFC3339Nano), !f.Until.IsZero())
	set("before", strconv.FormatInt(int64(f.Before), 10), f.Before > 0)
	set("limit", strconv.Itoa(f.Limit), f.Limit > 0)
	return q
}
