// Package flowapi contains the HTTP API of batches and flows. Package api mounts its routes.
package flowapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rowapi"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// Table provides the operations on batches and flows. The errors are problems, or errors that the host turns into problems.
type Table interface {
	// List returns batches and flows, the newest first.
	List(ctx context.Context, f contract.BatchFilter) ([]contract.Batch, error)
	// Get returns a batch or flow.
	Get(ctx context.Context, id dispatcherd.JobID) (contract.Batch, error)
	// Flow returns a flow with its nodes.
	Flow(ctx context.Context, id dispatcherd.JobID) (contract.Flow, error)
	// Open opens a batch.
	Open(ctx context.Context, b contract.NewBatch) (dispatcherd.JobID, error)
	// Seal says that a batch has all of its members.
	Seal(ctx context.Context, id dispatcherd.JobID) (contract.Sealed, error)
	// InsertFlow inserts a flow.
	InsertFlow(ctx context.Context, document []byte) (contract.InsertedFlow, error)
	// Cancel cancels a batch or flow and everything below it.
	Cancel(ctx context.Context, id dispatcherd.JobID) (contract.CancelledTree, error)
	// Retry runs failed and cancelled members or nodes again.
	Retry(ctx context.Context, id dispatcherd.JobID) (contract.RetriedTree, error)
	// Repair counts the jobs that have not ended again, and returns how many counters were wrong.
	Repair(ctx context.Context, id dispatcherd.JobID) (int, error)
}

// Tables returns the tables of a caller.
type Tables interface {
	// As returns the table for an operation in the name of a caller, which the rows of cancelled jobs contain.
	As(by string) Table
	// Types returns the types of jobs, in no order, without those that do not exist.
	Types(ctx context.Context, ids []int64) ([]string, error)
}

// Host is the API that mounts the routes.
type Host interface {
	rowapi.Host
	// Permit returns a problem if the caller may not use jobs of a type.
	Permit(r *http.Request, typ string) error
	// PermitAll returns a problem if the caller may not use jobs of all types.
	PermitAll(r *http.Request) error
	// Caller names the caller.
	Caller(r *http.Request) string
}

// handler serves the routes.
type handler struct {
	tables Tables
	host   Host
}

// Routes returns the routes of batches and flows.
func Routes(tables Tables, host Host) []rowapi.Route {
	h := handler{tables, host}
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	const one = "/v1/batches/{id}"
	return []rowapi.Route{
		rowapi.On(get, "/v1/batches", []string{"kind", "state", "before", "limit"}, h.list),
		rowapi.On(post, "/v1/batches", nil, h.open),
		rowapi.On(get, one, nil, h.onBatch(h.get)),
		rowapi.On(del, one, nil, h.onBatch(h.forAllOf(h.cancel))),
		rowapi.On(post, one+"/seal", nil, h.onBatch(h.seal)),
		rowapi.On(post, one+"/retry", nil, h.onBatch(h.forAllOf(h.retry))),
		rowapi.On(post, one+"/repair", nil, h.onBatch(h.repair)),
		rowapi.On(post, "/v1/flows", nil, h.insert),
		rowapi.On(get, "/v1/flows/{id}", nil, h.onBatch(h.flow)),
	}
}

// BatchPage answers GET /v1/batches. Names and numbers of jobs are for all callers.
type BatchPage struct {
	Batches []contract.Batch  `json:"batches"`
	Next    dispatcherd.JobID `json:"next_before,omitempty"` // the next page begins before this id; absent = there is none
}

func (h handler) table(r *http.Request) Table { return h.tables.As(h.host.Caller(r)) }

func (h handler) list(w http.ResponseWriter, r *http.Request) error {
	f, err := filterOf(r)
	if err != nil {
		return err
	}
	list, err := h.table(r).List(r.Context(), f)
	if err != nil {
		return err
	}
	page := BatchPage{Batches: append([]contract.Batch{}, list...)}
	if len(list) == f.Limit {
		page.Next = list[f.Limit-1].ID
	}
	h.host.Answer(w, http.StatusOK, page)
	return nil
}

// filterOf reads the parameters of a page.
func filterOf(r *http.Request) (f contract.BatchFilter, err error) {
	q := r.URL.Query()
	f = contract.BatchFilter{Kind: q.Get("kind"), State: q.Get("state")}
	kinds := []string{contract.BatchKind, contract.FlowKind, contract.ChildrenKind}
	switch {
	case f.Kind != "" && !slices.Contains(kinds, f.Kind):
		return f, invalid("kind", f.Kind, fmt.Sprintf("one of %q", kinds))
	case f.State != "" && !slices.Contains(contract.BatchStates, f.State):
		return f, invalid("state", f.State, fmt.Sprintf("one of %q", contract.BatchStates))
	}
	if f.Limit, err = rowapi.Number(r, "limit", rowapi.DefaultPage); err != nil {
		return f, err
	}
	if text := q.Get("before"); text != "" {
		id, err := strconv.ParseInt(text, 10, 64)
		if f.Before = dispatcherd.JobID(id); err != nil || id < 1 {
			return f, invalid("before", text, "the id of a batch")
		}
	}
	return f, nil
}

func invalid(name, text, want string) error {
	return problem.InvalidRequest.Of(fmt.Sprintf("%s is %q: it must be %s", name, jsontext.Excerpt(text), want))
}

// onBatch reads the id of the path and the batch or flow. It returns a problem if the caller may not use the types of its
// callback and nodes.
func (h handler) onBatch(
	handle func(http.ResponseWriter, *http.Request, *contract.Batch) error,
) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil || id < 1 {
			return problem.NotFound.Of("ids of batches and flows are whole numbers from 1")
		}
		b, err := h.table(r).Get(r.Context(), dispatcherd.JobID(id))
		if err == nil && b.CallbackType != "" {
			err = h.host.Permit(r, b.CallbackType)
		}
		if err != nil {
			return err
		}
		return handle(w, r, &b)
	}
}

// forAllOf is a handler for callers that may use the types of all members. Those of a flow are known; members of a batch may have
// any type.
func (h handler) forAllOf(
	handle func(http.ResponseWriter, *http.Request, *contract.Batch) error,
) func(http.ResponseWriter, *http.Request, *contract.Batch) error {
	return func(w http.ResponseWriter, r *http.Request, b *contract.Batch) error {
		if err := h.permitMembers(r, b); err != nil {
			return err
		}
		return handle(w, r, b)
	}
}

func (h handler) permitMembers(r *http.Request, b *contract.Batch) error {
	if b.Kind != contract.FlowKind {
		return h.host.PermitAll(r)
	}
	_, err := h.permittedFlow(r, b.ID)
	return err
}

// PermitCancel returns a problem if a caller may not cancel the members that end with a job: those of a batch or flow whose callback
// it is. After the end of the batch it has none.
func PermitCancel(r *http.Request, tables Tables, host Host, job dispatcherd.JobID) error {
	h := handler{tables, host}
	b, err := h.table(r).Get(r.Context(), job)
	switch p, ok := errors.AsType[*problem.Problem](err); {
	case ok && p.Name() == problem.NotFound.Name:
		return nil
	case err != nil || !b.Callback || b.EndedAt != nil:
		return err
	}
	return h.permitMembers(r, &b)
}

// PermitParent returns the error of permit for the callback of a batch, whose run a member delays.
func PermitParent(ctx context.Context, tables Tables, batch dispatcherd.JobID, permit func(typ string) error) error {
	types, err := tables.Types(ctx, []int64{int64(batch)})
	for _, typ := range types {
		if err == nil {
			err = permit(typ)
		}
	}
	return err
}

// permittedFlow reads a flow. It returns a problem if the caller may not use the type of a node.
func (h handler) permittedFlow(r *http.Request, id dispatcherd.JobID) (contract.Flow, error) {
	f, err := h.table(r).Flow(r.Context(), id)
	if err != nil {
		return f, err
	}
	types := make([]string, len(f.Nodes))
	for i := range f.Nodes {
		types[i] = f.Nodes[i].Type
	}
	return f, h.permit(r, types)
}

func (h handler) permit(r *http.Request, types []string) error {
	slices.Sort(types)
	for _, typ := range slices.Compact(types) {
		if typ == "" { // the row was deleted
			continue
		}
		if err := h.host.Permit(r, typ); err != nil {
			return err
		}
	}
	return nil
}

func (h handler) get(w http.ResponseWriter, _ *http.Request, b *contract.Batch) error {
	h.host.Answer(w, http.StatusOK, b)
	return nil
}

func (h handler) flow(w http.ResponseWriter, r *http.Request, b *contract.Batch) error {
	f, err := h.permittedFlow(r, b.ID)
	if err != nil {
		return err
	}
	h.host.Answer(w, http.StatusOK, f)
	return nil
}

func (h handler) cancel(w http.ResponseWriter, r *http.Request, b *contract.Batch) error {
	c, err := h.table(r).Cancel(r.Context(), b.ID)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if c.Running > 0 {
		status = http.StatusAccepted
	}
	h.host.Answer(w, status, c)
	return nil
}

func (h handler) seal(w http.ResponseWriter, r *http.Request, b *contract.Batch) error {
	s, err := h.table(r).Seal(r.Context(), b.ID)
	if err != nil {
		return err
	}
	h.host.Answer(w, http.StatusOK, s)
	return nil
}

// Changed answers a repair: the counters that were wrong.
type Changed struct {
	Changed int `json:"changed"`
}

func (h handler) retry(w http.ResponseWriter, r *http.Request, b *contract.Batch) error {
	retried, err := h.table(r).Retry(r.Context(), b.ID)
	if err != nil {
		return err
	}
	h.host.Answer(w, http.StatusOK, retried)
	return nil
}

func (h handler) repair(w http.ResponseWriter, r *http.Request, b *contract.Batch) error {
	n, err := h.table(r).Repair(r.Context(), b.ID)
	if err != nil {
		return err
	}
	h.host.Answer(w, http.StatusOK, Changed{n})
	return nil
}

// Opened answers POST /v1/batches.
type Opened struct {
	ID dispatcherd.JobID `json:"id"`
}

// batchFields are the members of the body of POST /v1/batches.
var batchFields = []string{"callback", "run_when", "name", "parent"}

func (h handler) open(w http.ResponseWriter, r *http.Request) error {
	body, release, err := h.host.Body(w, r)
	if err != nil {
		return err
	}
	defer release()
	var b struct {
		Callback json.RawMessage   `json:"callback"`
		RunWhen  string            `json:"run_when"`
		Name     *string           `json:"name"`
		Parent   dispatcherd.JobID `json:"parent"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return problem.InvalidRequest.Of(
			`a batch is a JSON object, for example {"callback": {"type": "report"}, "run_when": "ended", "name": "nightly"}`,
		)
	}
	if err := jsontext.CheckNames(body, batchFields); err != nil {
		return problem.InvalidRequest.Of(err.Error())
	}
	if string(b.Callback) == "null" {
		b.Callback = nil
	}
	var name string
	if b.Name != nil {
		if name = *b.Name; name == "" { // otherwise Postgres checks it
			return problem.InvalidRequest.Of(`name is "": it must have 1 to 128 bytes, or be left out`)
		}
	}
	if b.Callback != nil {
		job, err := jobOf("the callback", b.Callback)
		if err == nil {
			err = h.permit(r, []string{job.Type})
		}
		if err != nil {
			return err
		}
	}
	if b.Parent != 0 {
		permit := func(typ string) error { return h.host.Permit(r, typ) }
		if err := PermitParent(r.Context(), h.tables, b.Parent, permit); err != nil {
			return err
		}
	}
	id, err := h.table(r).Open(r.Context(), contract.NewBatch{Callback: b.Callback, RunWhen: b.RunWhen, Name: name, Parent: b.Parent})
	if err != nil {
		return err
	}
	w.Header().Set("Location", fmt.Sprintf("/v1/batches/%d", id))
	h.host.Answer(w, http.StatusCreated, Opened{id})
	return nil
}

// jobObject is what permissions need to know of a job.
type jobObject struct {
	Type  string            `json:"type"`
	After []json.RawMessage `json:"after"`
}

// jobOf reads a job. Of repeated members, jsonb, too, keeps the last one, and Postgres refuses names in other letters.
func jobOf(what string, object []byte) (j jobObject, err error) {
	if err := json.Unmarshal(object, &j); err != nil {
		return j, problem.InvalidRequest.Of(what + ` is a JSON object, for example {"type": "report"}; "type" is a text, and "after" an array`)
	}
	return j, nil
}

func (h handler) insert(w http.ResponseWriter, r *http.Request) error {
	body, release, err := h.host.Body(w, r)
	if err != nil {
		return err
	}
	defer release()
	if err := h.permitDocument(r, body); err != nil {
		return err
	}
	inserted, err := h.table(r).InsertFlow(r.Context(), body)
	if err != nil {
		return err
	}
	w.Header().Set("Location", fmt.Sprintf("/v1/flows/%d", inserted.ID))
	h.host.Answer(w, http.StatusCreated, inserted)
	return nil
}

// permitDocument returns a problem if the caller may not use the types of the nodes, of the callback, and of the existing jobs whose
// results nodes may take.
func (h handler) permitDocument(r *http.Request, document []byte) error {
	var flow struct {
		Callback json.RawMessage   `json:"callback"`
		Nodes    []json.RawMessage `json:"nodes"`
	}
	if err := json.Unmarshal(document, &flow); err != nil {
		return problem.InvalidRequest.Of(
			`a flow is a JSON object, for example {"nodes": [{"name": "load", "type": "load"}, {"name": "sum", "type": "sum", "after": ["load"]}]}`,
		)
	}
	var types []string
	if flow.Callback != nil {
		j, err := jobOf("the callback", flow.Callback)
		if err != nil {
			return err
		}
		types = append(types, j.Type)
	}
	var ids []int64
	for i, node := range flow.Nodes {
		j, err := jobOf(fmt.Sprintf("node %d of the document", i+1), node)
		if err != nil {
			return err
		}
		types = append(types, j.Type)
		for _, after := range j.After {
			if len(after) > 0 && after[0] == '"' { // the name of a node
				continue
			}
			id, err := strconv.ParseInt(string(after), 10, 64)
			if err != nil {
				return problem.InvalidRequest.Of(
					fmt.Sprintf(`node %d of the document: "after" contains names of nodes as strings, and ids of jobs as whole numbers`, i+1),
				)
			}
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		others, err := h.tables.Types(r.Context(), ids)
		if err != nil {
			return err
		}
		types = append(types, others...)
	}
	return h.permit(r, types)
}
