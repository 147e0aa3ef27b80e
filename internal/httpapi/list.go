package httpapi

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// JobFilter selects jobs.
type JobFilter struct {
	Type string `param:"type"` // Only jobs of this type.
	// Only jobs with one of these statuses, separated by commas.
	Status []dispatcherd.Status `param:"status" enum:"waiting,pending,running,done,failed,cancelled"`
	Newer  contract.Moment      `param:"newer_than"` // Only jobs that were created at this time or later.
	Older  contract.Moment      `param:"older_than"` // Only jobs that were created before this time.
}

// filter returns the filter of a call. It selects only jobs that the caller may use.
func (q *JobFilter) filter(r *rest.Request, limit int, cursor contract.Cursor) (f contract.Filter, err error) {
	f = contract.Filter{Type: q.Type, Statuses: q.Status, Newer: q.Newer, Older: q.Older, Limit: limit, Permit: r.Permitted()}
	if f.Type != "" {
		f.Permit, err = nil, r.Permit(f.Type)
	}
	if err == nil {
		err = rest.After(cursor, &f.Before)
	}
	return f, err
}

// JobQuery selects a page of jobs.
type JobQuery struct {
	JobFilter
	rest.Query
}

func (h *Handler) getJobs(r *rest.Request, q *JobQuery) (page contract.JobPage, err error) {
	f, err := q.filter(r, q.Limit, q.Cursor)
	if err != nil {
		return page, err
	}
	page, err = h.backend.List(r.Context(), f)
	for i := range page.Items {
		if !may(r.Request, MayReveal) {
			page.Items[i].Conceal()
		}
	}
	return page, err
}

// JobChange selects jobs to be cancelled or retried.
type JobChange struct {
	JobFilter
	rest.Bulk
}

func (h *Handler) cancelJobs(r *rest.Request, q *JobChange) (contract.Bulk, error) {
	return h.change(r, contract.CancelJobs, q)
}

func (h *Handler) retryJobs(r *rest.Request, q *JobChange) (contract.Bulk, error) {
	return h.change(r, contract.RetryJobs, q)
}

// change cancels or retries all jobs that a filter selects, or counts them.
func (h *Handler) change(r *rest.Request, op contract.Operation, q *JobChange) (b contract.Bulk, err error) {
	f, err := q.filter(r, q.Limit, q.Cursor)
	if err == nil {
		err = narrow(r, op, &f)
	}
	switch {
	case err != nil:
		return b, err
	case q.DryRun:
		b, err = h.backend.Change(r.Context(), op, f, -1, r.Name())
	case q.Expect == nil:
		return b, rest.InvalidRequest.Of("expect or dry_run is needed: count the jobs with dry_run=true, then pass their number as expect")
	default:
		b, err = h.backend.Change(r.Context(), op, f, *q.Expect, r.Name())
	}
	if err == nil && q.Expect != nil && b.Matching != *q.Expect { // of a dry run
		err = &contract.CountError{Have: b.Matching, Want: *q.Expect}
	}
	return b, err
}

// narrow completes the filter of an operation. Waiting jobs may be callbacks, with which members of any type are cancelled. So only
// a caller of all types cancels them by a filter.
func narrow(r *rest.Request, op contract.Operation, f *contract.Filter) error {
	named := slices.Contains(f.Statuses, dispatcherd.Waiting)
	if err := op.Narrow(f); err != nil {
		return rest.InvalidRequest.Of(err.Error())
	}
	if r.Permitted() == nil || !slices.Contains(f.Statuses, dispatcherd.Waiting) {
		return nil
	}
	err := r.PermitAll()
	if err != nil && !named {
		f.Statuses = slices.DeleteFunc(slices.Clone(f.Statuses), func(s dispatcherd.Status) bool { return s == dispatcherd.Waiting })
		return nil
	}
	return err
}

// TypeFilter selects a page of elements of a type.
type TypeFilter struct {
	rest.Query

	Type string `param:"type"` // Only elements of this type, or slots that support it.
}

// getRequests lists the requests that wait in memory, without those that the caller may not use.
func (h *Handler) getRequests(r *rest.Request, q *TypeFilter) (p contract.Page[WaitingRequest], err error) {
	permitted := r.Permitted()
	if q.Type != "" {
		permitted, err = nil, r.Permit(q.Type)
	}
	if err != nil {
		return p, err
	}
	return rest.Cut(slices.DeleteFunc(h.backend.Waiting(), func(w WaitingRequest) bool {
		return q.Type != "" && w.Type != q.Type || permitted != nil && !permitted(w.Type)
	}), q.Query, func(w *WaitingRequest) int64 { return -int64(w.ID) })
}

func (h *Handler) getWorkers(_ *rest.Request, q *rest.Query) (contract.Page[Worker], error) {
	return rest.Cut(h.backend.Workers(), *q, func(w *Worker) int64 { return w.Session })
}

func (h *Handler) getDispatchers(r *rest.Request, q *rest.Query) (p contract.Page[contract.Dispatcher], err error) {
	all, err := h.backend.Dispatchers(r.Context())
	if err != nil {
		return p, err
	}
	return rest.Cut(all, *q, func(d *contract.Dispatcher) string { // in the order of the statement
		return fmt.Sprintf("%016x %010d", math.MaxInt64-d.StartedAt.UnixMicro(), d.ID)
	})
}

func (h *Handler) getSlots(_ *rest.Request, q *TypeFilter) (p contract.Page[contract.Slot], err error) {
	s := SlotQuery{Type: q.Type, Limit: q.Limit}
	if err = rest.After(q.Cursor, &s.After); err != nil {
		return p, err
	}
	var next int64
	if p.Items, next = h.backend.Slots(s); next > 0 {
		p.Next = contract.CursorOf(next)
	}
	return p, nil
}

// TypePage is a page of types, by name.
type TypePage struct {
	contract.Page[Type]

	// Time since the latest count of the pending rows; before the first count, since the start.
	PendingAge float64 `json:"pending_age_seconds"`
}

func (h *Handler) getTypes(_ *rest.Request, q *rest.Names) (p TypePage, err error) {
	p = h.backend.Types()
	p.Page, err = rest.Cut(slices.DeleteFunc(p.Items, func(t Type) bool { return !strings.HasPrefix(t.Type, q.Prefix) }), q.Query,
		func(t *Type) string { return t.Type })
	return p, err
}
