package httpapi

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// Bounds of a page of jobs or workers.
const (
	defaultPage = 100
	maxPage     = 1000
)

// Query parameters of lists.
var (
	pageQuery   = []string{"after", "limit"}
	filterQuery = []string{"type", "status", "since", "until", "before", "limit"}
	bulkQuery   = append(slices.Clip(filterQuery), "count")
)

// getJobs lists jobs, without those that the caller may not read.
func (h *Handler) getJobs(w http.ResponseWriter, r *http.Request) error {
	f, err := h.filterOf(r)
	if err != nil {
		return err
	}
	f.Limit = cmp.Or(f.Limit, defaultPage)
	page, err := h.backend.List(r.Context(), f)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, page)
	return nil
}

// bulk returns the handler that cancels or retries all jobs that a filter selects. Without a
// count it only counts them.
func (h *Handler) bulk(op contract.Operation) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if r.ContentLength != 0 { // a filter in the body must not be ignored
			endBody(w, r, false)
			return problem.InvalidRequest.Of("this call takes no body: the filter and the count are query parameters")
		}
		f, err := h.filterOf(r)
		if err != nil {
			return err
		}
		if err := h.narrow(r, op, &f); err != nil {
			return err
		}
		count := -1
		if text := r.URL.Query().Get("count"); text != "" {
			if count, err = strconv.Atoi(text); err != nil || count < 0 || count > maxPage {
				return problem.InvalidRequest.Of(fmt.Sprintf("count must be 0 to %d: one call changes at most so many jobs", maxPage))
			}
		}
		b, err := h.backend.Change(r.Context(), op, f, count, callerName(r))
		if err != nil {
			return err
		}
		answerJSON(w, http.StatusOK, b)
		return nil
	}
}

// filterOf reads a filter from the query. It selects only jobs that the caller may use.
func (h *Handler) filterOf(r *http.Request) (f contract.Filter, err error) {
	q := r.URL.Query()
	f.Type = q.Get("type")
	if text := q.Get("status"); text != "" {
		for name := range strings.SplitSeq(text, ",") {
			s := dispatcherd.Status(name)
			if !slices.Contains(dispatcherd.Statuses, s) {
				return f, problem.InvalidRequest.Of(
					fmt.Sprintf("status %q is none of waiting, pending, running, done, failed, cancelled", jsontext.Excerpt(name)),
				)
			}
			f.Statuses = append(f.Statuses, s)
		}
	}
	if f.Since, err = timeIn(q.Get("since"), "since"); err != nil {
		return f, err
	}
	if f.Until, err = timeIn(q.Get("until"), "until"); err != nil {
		return f, err
	}
	before, err := numberIn(q.Get("before"), "before", 1<<62)
	if err != nil {
		return f, err
	}
	limit, err := numberIn(q.Get("limit"), "limit", maxPage)
	if err != nil {
		return f, err
	}
	f.Before, f.Limit = dispatcherd.JobID(before), int(limit)
	return f, h.restrict(&f, h.callerOf(r))
}

// restrict limits a filter to the types that a caller may use.
func (h *Handler) restrict(f *contract.Filter, c caller) error {
	if f.Type != "" {
		return c.permit(f.Type)
	}
	if h.Permit == nil || c.tcp {
		return nil
	}
	known := map[string]bool{}
	f.Permit = func(typ string) bool {
		permitted, seen := known[typ]
		if !seen {
			permitted = h.Permit(c.peer, typ) == ""
			known[typ] = permitted
		}
		return permitted
	}
	return nil
}

// timeIn reads a time of a query; zero = it is absent.
func timeIn(text, name string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, problem.InvalidRequest.Of(name + " must be a time in RFC 3339, such as 2026-01-31T08:00:00Z (%2B for + in a URL)")
	}
	return at, nil
}

// numberIn reads a number of a query from 1 on; 0 = it is absent.
func numberIn(text, name string, most int64) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, problem.InvalidRequest.Of(fmt.Sprintf("%s is %q: it must be a whole number from 1 to %d", name, jsontext.Excerpt(text), most))
	}
	return n, nil
}

// RequestPage answers GET /v1/requests.
type RequestPage struct {
	Requests []WaitingRequest  `json:"requests"`
	Next     dispatcherd.JobID `json:"next_after,omitempty"` // the next page begins after this request; 0 = there is none
}

// getRequests lists the requests that wait in memory, without those that the caller may not
// use.
func (h *Handler) getRequests(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	after := int64(0)
	if text := q.Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after >= 0 {
			return problem.InvalidRequest.Of(
				fmt.Sprintf("after is %q: ids of requests in memory are whole numbers from -1 down", jsontext.Excerpt(text)),
			)
		}
	}
	limit, err := numberIn(q.Get("limit"), "limit", MaxEntries)
	if err != nil {
		return err
	}
	f := contract.Filter{Type: q.Get("type")}
	if err := h.restrict(&f, h.callerOf(r)); err != nil {
		return err
	}
	page := RequestPage{Requests: slices.DeleteFunc(h.backend.Waiting(), func(r WaitingRequest) bool {
		return after != 0 && int64(r.ID) >= after || f.Type != "" && r.Type != f.Type || f.Permit != nil && !f.Permit(r.Type)
	})}
	if most := int(cmp.Or(limit, DefaultEntries)); len(page.Requests) > most {
		page.Requests, page.Next = page.Requests[:most], page.Requests[most-1].ID
	}
	answerJSON(w, http.StatusOK, page)
	return nil
}

// getWorkers lists the workers of this dispatcher by session.
func (h *Handler) getWorkers(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	after, err := numberIn(q.Get("after"), "after", 1<<62)
	if err != nil {
		return err
	}
	limit, err := numberIn(q.Get("limit"), "limit", maxPage)
	if err != nil {
		return err
	}
	all := h.backend.Workers()
	first, _ := slices.BinarySearchFunc(all, after+1, func(w Worker, session int64) int { return cmp.Compare(w.Session, session) })
	all = all[first:]
	page := WorkerPage{Workers: all}
	if most := int(cmp.Or(limit, defaultPage)); len(all) > most {
		page.Workers, page.Next = all[:most], all[most-1].Session
	}
	answerJSON(w, http.StatusOK, page)
	return nil
}

// WorkerPage is a page of workers.
type WorkerPage struct {
	Workers []Worker `json:"workers"`
	Next    int64    `json:"next_after,omitempty"` // the next page begins after this session; 0 = there is none
}

// getDispatchers lists the dispatchers of the table.
func (h *Handler) getDispatchers(w http.ResponseWriter, r *http.Request) error {
	all, err := h.backend.Dispatchers(r.Context())
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, struct {
		Dispatchers []contract.Dispatcher `json:"dispatchers"`
	}{all})
	return nil
}

// Bounds of a page of slots or types.
const (
	DefaultEntries = 1_000
	MaxEntries     = 10_000
)

// SlotList answers GET /v1/slots.
type SlotList struct {
	Slots []Slot `json:"slots"`
	Next  int64  `json:"next_after,omitempty"` // the next page begins after this slot; 0 = there is none
}

// TypeList answers GET /v1/types.
type TypeList struct {
	Types      []Type  `json:"types"`                // in the order of names; never nil
	PendingAge float64 `json:"pending_age_seconds"`  // time since the count of pending rows; without a count, since the start
	Next       string  `json:"next_after,omitempty"` // the next page begins after this type; "" = there is none
}

func (h *Handler) getSlots(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	after, err := numberIn(q.Get("after"), "after", 1<<62)
	if err != nil {
		return err
	}
	limit, err := numberIn(q.Get("limit"), "limit", MaxEntries)
	if err != nil {
		return err
	}
	var list SlotList
	list.Slots, list.Next = h.backend.Slots(SlotQuery{After: after, Type: q.Get("type"), Limit: int(cmp.Or(limit, DefaultEntries))})
	answerJSON(w, http.StatusOK, list)
	return nil
}

func (h *Handler) getTypes(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := numberIn(q.Get("limit"), "limit", MaxEntries)
	if err != nil {
		return err
	}
	list := h.backend.Types()
	after := q.Get("after")
	list.Types = list.Types[sort.Search(len(list.Types), func(i int) bool { return list.Types[i].Type > after }):]
	if most := int(cmp.Or(limit, DefaultEntries)); len(list.Types) > most {
		list.Types, list.Next = list.Types[:most], list.Types[most-1].Type
	}
	answerJSON(w, http.StatusOK, list)
	return nil
}
