package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/joblines"
)

// store are the jobs as the commands use them: the table, or the API of a dispatcher. The
// methods are those of [claim.Jobs] and [joblines.Job].
type store interface {
	List(ctx context.Context, f contract.Filter) (contract.Page, error)
	Get(ctx context.Context, id dispatcherd.JobID) (contract.Job, error)
	Cancel(ctx context.Context, id dispatcherd.JobID) (dispatcherd.Status, error)
	Retry(ctx context.Context, id dispatcherd.JobID) error
	Change(ctx context.Context, op contract.Operation, f contract.Filter, count int) (contract.Bulk, error)
	Insert(ctx context.Context, n claim.New) (dispatcherd.JobID, error)
	InsertUnique(ctx context.Context, job *joblines.Job) (id dispatcherd.JobID, inserted bool, err error)
	InsertMany(ctx context.Context, jobs iter.Seq2[claim.New, error]) (int64, error)
}

// withStore opens the table or the API.
func (a commands) withStore(ctx context.Context, at *ask.Dispatcher, do func(store) error) error {
	return a.TableOrAPI(ctx, func(pool *pgxpool.Pool) error { return do(table{claim.Jobs{DB: pool}}) }, func() error { return do(remote{at}) })
}

// table are the jobs as the table has them.
type table struct{ claim.Jobs }

// InsertUnique implements store.
func (t table) InsertUnique(ctx context.Context, job *joblines.Job) (id dispatcherd.JobID, inserted bool, err error) {
	return job.InsertUnique(ctx, t.DB)
}

// InsertMany implements store. created_at and the default of run_at are read in one transaction.
func (t table) InsertMany(ctx context.Context, jobs iter.Seq2[claim.New, error]) (count int64, err error) {
	err = pgx.BeginFunc(ctx, t.DB, func(tx pgx.Tx) error {
		count, err = claim.Jobs{DB: tx}.InsertMany(ctx, jobs)
		return err
	})
	return count, err
}

// remote are the jobs as the API of a dispatcher shows them.
type remote struct{ at *ask.Dispatcher }

// List implements store.
func (r remote) List(ctx context.Context, f contract.Filter) (page contract.Page, err error) {
	err = r.at.JSON(ctx, "/v1/jobs?"+queryOf(f).Encode(), &page)
	return page, err
}

// Get implements store.
func (r remote) Get(ctx context.Context, id dispatcherd.JobID) (job contract.Job, err error) {
	err = about(id, r.at.JSON(ctx, jobPath(id), &job))
	return job, err
}

// Cancel implements store.
func (r remote) Cancel(ctx context.Context, id dispatcherd.JobID) (dispatcherd.Status, error) {
	var state httpapi.JobState
	err := about(id, r.at.Call(ctx, http.MethodDelete, jobPath(id), nil, &state))
	return state.Status, err
}

// Retry implements store.
func (r remote) Retry(ctx context.Context, id dispatcherd.JobID) error {
	return about(id, r.at.Call(ctx, http.MethodPost, jobPath(id)+"/retry", nil, &httpapi.JobState{}))
}

// Change implements store.
func (r remote) Change(ctx context.Context, op contract.Operation, f contract.Filter, count int) (b contract.Bulk, err error) {
	query := queryOf(f)
	if count >= 0 {
		query.Set("count", strconv.Itoa(count))
	}
	err = r.at.Call(ctx, http.MethodPost, "/v1/"+string(op)+"?"+query.Encode(), nil, &b)
	return b, err
}

// Insert implements store.
func (r remote) Insert(ctx context.Context, n claim.New) (dispatcherd.JobID, error) {
	var inserted httpapi.Inserted
	err := r.at.Call(ctx, http.MethodPost, "/v1/jobs", joblines.Of(n), &inserted)
	return inserted.ID, err
}

// InsertUnique implements store.
func (r remote) InsertUnique(ctx context.Context, job *joblines.Job) (id dispatcherd.JobID, inserted bool, err error) {
	var answer httpapi.Inserted
	err = r.at.Call(ctx, http.MethodPost, "/v1/jobs", job, &answer)
	return answer.ID, !answer.Existing, err
}

// InsertMany implements store. The request ends without the end of its body after an error of
// the iterator, so the dispatcher inserts nothing.
func (r remote) InsertMany(ctx context.Context, jobs iter.Seq2[claim.New, error]) (int64, error) {
	body, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		var bad error
		lines := json.NewEncoder(w)
		for n, err := range jobs {
			if bad = err; bad != nil || lines.Encode(joblines.Of(n)) != nil { // Encode fails after the answer only
				break
			}
		}
		_ = w.CloseWithError(bad) // never fails
		ended <- bad
	}()
	var uploaded httpapi.Uploaded
	err := r.at.Upload(ctx, "/v1/jobs", "application/x-ndjson", body, &uploaded)
	_ = body.Close() // ends the goroutine if the dispatcher answered early; never fails
	return uploaded.Inserted, cmp.Or(<-ended, err)
}

func jobPath(id dispatcherd.JobID) string { return fmt.Sprintf("/v1/jobs/%d", id) }

// about returns the error of claim.Jobs if a dispatcher has no such job.
func about(id dispatcherd.JobID, err error) error {
	coded, ok := errors.AsType[*exit.Error](err)
	if !ok || coded.Code != exit.NotFound {
		return err
	}
	for _, kind := range []string{contract.BatchKind, contract.FlowKind} {
		if e := (&claim.NoCallbackError{ID: id, Kind: kind}); strings.Contains(err.Error(), e.Error()) {
			return e
		}
	}
	return fmt.Errorf("job %d: %w", id, claim.ErrNotFound)
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
