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

// permitted completes the filter of a call. It selects only jobs that the caller may use.
func permitted(r *rest.Request, f contract.Filter, limit int, cursor contract.Cursor) (_ contract.Filter, err error) {
	f.Most, f.Permit = limit, r.Permitted()
	if f.Error != "" && !r.Reveals() { // the answers would tell the text
		return f, lacks(r.Request, "payload", "the parameter error")
	}
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
	contract.Filter
	rest.Query
}

func (h *Handler) getJobs(r *rest.Request, q *JobQuery) (page contract.JobPage, err error) {
	if q.Ended != (contract.Moment{}) && q.Statuses == nil {
		q.Statuses = []dispatcherd.Status{dispatcherd.Done, dispatcherd.Failed, dispatcherd.Cancelled}
	}
	f, err := permitted(r, q.Filter, q.Limit, q.Cursor)
	if err != nil {
		return page, err
	}
	return h.backend.List(r.Context(), f)
}

// JobChange selects jobs to be cancelled or retried.
type JobChange struct {
	contract.Filter
	rest.Bulk
}

// change cancels or retries all jobs that a filter selects, or counts them.
func (h *Handler) change(op contract.Operation) func(*rest.Request, *JobChange) (contract.Bulk, error) {
	return func(r *rest.Request, q *JobChange) (b contract.Bulk, err error) {
		f, err := permitted(r, q.Filter, q.Limit, q.Cursor)
		if err == nil {
			err = narrow(r, op, &f)
		}
		count := -1 // of a dry run
		switch {
		case err != nil:
			return b, err
		case q.DryRun:
		case q.Expect == nil:
			return b, rest.InvalidRequest.Of("expect or dry_run is needed: count the jobs with dry_run=true, then pass their number as expect")
		default:
			count = *q.Expect
		}
		b, err = h.backend.Change(r.Context(), op, f, count, r.Name())
		if err == nil && q.Expect != nil && b.Matching != *q.Expect { // of a dry run
			err = &contract.CountError{Have: b.Matching, Want: *q.Expect}
		}
		return b, err
	}
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

	Type string `param:"type"` // Only elements of this type.
}

// getRequests lists the requests that wait in memory, without those that the caller may not use.
func (h *Handler) getRequests(r *rest.Request, q *TypeFilter) (p contract.Page[contract.WaitingRequest], err error) {
	permitted := r.Permitted()
	if q.Type != "" {
		permitted, err = nil, r.Permit(q.Type)
	}
	if err != nil {
		return p, err
	}
	return rest.Cut(slices.DeleteFunc(h.backend.Waiting(), func(w contract.WaitingRequest) bool {
		return q.Type != "" && w.Type != q.Type || permitted != nil && !permitted(w.Type)
	}), q.Query, func(w *contract.WaitingRequest) int64 { return -int64(w.ID) })
}

// getStatus says what the cluster does. The list of types contains those that the caller may not use, as other lists do.
func (h *Handler) getStatus(*rest.Request, *struct{}) (contract.Status, error) {
	return h.backend.Status(), nil
}

func (h *Handler) getWorkers(r *rest.Request, q *rest.Everywhere) (contract.Page[contract.Worker], error) {
	all, notes := h.backend.Workers(q.Local)
	return cut(all, notes, q.Query, func(w *contract.Worker) string {
		return fmt.Sprintf("%s\n%010d %019d", w.DispatcherName, w.Dispatcher, w.Session)
	})
}

// cut returns a page of a list of elements of several dispatchers, which is in the order of its keys.
func cut[T any](all []T, notes []string, q rest.Query, key func(*T) string) (contract.Page[T], error) {
	p, err := rest.Cut(all, q, key)
	p.Notes = notes
	return p, err
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

func (h *Handler) getSlots(r *rest.Request, q *rest.Slots) (p contract.Page[contract.Slot], err error) {
	all, notes := h.backend.Slots(q.Local)
	all = slices.DeleteFunc(all, func(s contract.Slot) bool { return q.Type != "" && !slices.Contains(s.Types, q.Type) })
	return cut(all, notes, q.Query, func(s *contract.Slot) string {
		return fmt.Sprintf("%s\n%010d %019d", s.DispatcherName, s.Dispatcher, s.Slot)
	})
}

func (h *Handler) getTypes(r *rest.Request, q *rest.TypeNames) (p contract.TypePage, err error) {
	p = h.backend.Types(q.Local)
	all := slices.DeleteFunc(p.Items, func(t contract.Type) bool { return !strings.HasPrefix(t.Type, q.Prefix) })
	key := func(t *contract.Type) string {
		return fmt.Sprintf("%s\n%s\n%010d", t.Type, t.DispatcherName, t.Dispatcher)
	}
	slices.SortFunc(all, func(x, y contract.Type) int { return strings.Compare(key(&x), key(&y)) })
	p.Page, err = cut(all, p.Notes, q.Query, key)
	return p, err
}
