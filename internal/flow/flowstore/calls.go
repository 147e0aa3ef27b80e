package flowstore

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// API provides the HTTP calls of batches and flows.
type API struct {
	DB     joins.DB
	Warn   func(context.Context, ...contract.Needs) []string // says why jobs cannot run
	Notify func()                                            // is called when jobs may run that did not exist, or had ended
	Settle func(context.Context, dispatcherd.JobID)          // does what messages to a batch or flow ask for; see Service
}

// Calls returns the calls. Most need the right to use the types of the callback and of the nodes. A cancellation and a retry
// need the right for the types of all members; members of a batch may have any type.
func (a API) Calls() []rest.Route {
	const one = "/v1/batches/{id}"
	return []rest.Route{
		rest.On("list-batches", "GET /v1/batches", "List batches and flows, the newest first", a.list),
		rest.On("open-batch", "POST /v1/batches", "Open a batch; jobs with its id as parent are its members", a.open).
			Takes(contract.NewBatch{}).Answered(http.StatusCreated, "It was opened.").Fails(rest.NotFound, rest.Conflict),
		rest.On("get-batch", "GET "+one, "Read a batch or flow", a.get),
		rest.On("cancel-batch", "DELETE "+one, "Cancel a batch or flow and everything below it", a.cancel).
			Answered(http.StatusOK, "All of its jobs have ended.").Answered(http.StatusAccepted, "Workers are asked to stop running jobs.").
			Fails(rest.Conflict),
		rest.On("seal-batch", "POST "+one+"/seal", "Say that a batch has all of its members", a.seal).Fails(rest.Conflict),
		rest.On("retry-batch", "POST "+one+"/retry", "Run failed and cancelled members or nodes again", a.retry).Fails(rest.Conflict),
		rest.On("repair-batch", "POST "+one+"/repair", "Have the jobs that have not ended counted again", a.repair),
		rest.On("insert-flow", "POST /v1/flows", "Insert a flow, as a whole or not at all", a.insert).
			Takes(NewFlow{}).Answered(http.StatusCreated, "It was inserted.").Fails(rest.Conflict),
		rest.On("get-flow", "GET /v1/flows/{id}", "Read a flow with its nodes", a.flow),
	}
}

func (a API) joins(r *rest.Request) joins.Joins { return joins.Joins{DB: a.DB, By: r.Name()} }

// list selects a page of batches.
type list struct {
	rest.Query

	Kind  string `param:"kind" enum:"batch,flow,children"`          // Only this kind.
	State string `param:"state" enum:"open,sealed,ended,cancelled"` // Only this state.
}

// list shows names and numbers of jobs to all callers.
func (a API) list(r *rest.Request, q *list) (p contract.Page[contract.Batch], err error) {
	f := contract.BatchFilter{Kind: q.Kind, State: q.State, Limit: q.Limit + 1}
	if err := rest.After(q.Cursor, &f.Before); err != nil {
		return p, err
	}
	all, err := a.joins(r).List(r.Context(), f)
	return rest.PageOf(all, q.Limit, func(b *contract.Batch) any { return int64(b.ID) }), err
}

// ID is the id of a batch or flow.
type ID struct {
	ID dispatcherd.JobID `param:"id" minimum:"1"` // Id of the batch or flow.
}

// get reads a batch or flow, if the caller may use the type of its callback.
func (a API) get(r *rest.Request, q *ID) (contract.Batch, error) {
	b, err := a.joins(r).Get(r.Context(), q.ID)
	if err == nil && b.CallbackType != "" {
		err = r.Permit(b.CallbackType)
	}
	return b, err
}

// whole returns an error if the caller may not use the types of all members.
func (a API) whole(r *rest.Request, q *ID) error {
	b, err := a.get(r, q)
	if err != nil {
		return err
	}
	types, all, err := a.joins(r).MemberTypes(r.Context(), &b)
	if err != nil {
		return err
	}
	return rest.PermitTypes(r, types, all)
}

// Opened answers the opening of a batch.
type Opened struct {
	rest.Warned

	ID dispatcherd.JobID `json:"id"`
}

// jobObject is what permissions need to know of a job.
type jobObject struct {
	Type  string            `json:"type"`
	Keys  any               `json:"keys"`
	After []json.RawMessage `json:"after"`
}

// needs returns what the job needs. Postgres checks the keys.
func (j *jobObject) needs() contract.Needs {
	keys, _ := j.Keys.(string)
	return contract.Needs{Type: j.Type, Keys: keys}
}

// jobOf reads a job. Of repeated members, jsonb, too, keeps the last one, and Postgres refuses names in other letters.
func jobOf(what string, object []byte) (j jobObject, err error) {
	if err := json.Unmarshal(object, &j); err != nil {
		return j, rest.InvalidRequest.Of(what + ` is a JSON object, for example {"type": "report"}; "type" is a text, and "after" an array`)
	}
	return j, nil
}

func (a API) open(r *rest.Request, _ *struct{}) (o Opened, err error) {
	var b struct {
		contract.NewBatch

		Name *string `json:"name"` // an empty name differs from none
	}
	if err := r.Decode(&b); err != nil {
		return o, err
	}
	if string(b.Callback) == "null" {
		b.Callback = nil
	}
	if b.Name != nil {
		if b.NewBatch.Name = *b.Name; *b.Name == "" { // otherwise Postgres checks it
			return o, rest.InvalidRequest.Of(`name "": must have 1 to 128 bytes, or be left out`)
		}
	}
	var job jobObject
	var types []string
	if b.Parent != 0 && r.Permitted() != nil {
		types, err = a.joins(r).Types(r.Context(), []int64{int64(b.Parent)})
	}
	if err == nil && b.Callback != nil {
		job, err = jobOf("the callback", b.Callback)
		types = append(types, job.Type)
	}
	if err == nil {
		err = rest.PermitTypes(r, types, false)
	}
	if err == nil {
		o.ID, err = a.joins(r).Open(r.Context(), b.NewBatch)
	}
	if err == nil {
		r.Created(fmt.Sprintf("/v1/batches/%d", o.ID))
		if b.Callback != nil {
			o.Warnings = a.Warn(r.Context(), job.needs())
		}
	}
	return o, err
}

func (a API) cancel(r *rest.Request, q *ID) (c contract.CancelledTree, err error) {
	if err = a.whole(r, q); err == nil {
		c, err = a.joins(r).Cancel(r.Context(), q.ID)
	}
	if err == nil {
		a.Settle(r.Context(), q.ID)
	}
	if c.Running > 0 {
		r.SetStatus(http.StatusAccepted)
	}
	return c, err
}

func (a API) seal(r *rest.Request, q *ID) (s contract.Sealed, err error) {
	if _, err = a.get(r, q); err == nil {
		s, err = a.joins(r).Seal(r.Context(), q.ID)
	}
	return s, err
}

func (a API) retry(r *rest.Request, q *ID) (t contract.RetriedTree, err error) {
	if err = a.whole(r, q); err == nil {
		a.Settle(r.Context(), q.ID) // so the retry knows what has ended
		t, err = a.joins(r).Retry(r.Context(), q.ID)
	}
	if err == nil {
		a.Settle(r.Context(), q.ID)
		a.Notify()
	}
	return t, err
}

func (a API) repair(r *rest.Request, q *ID) (b contract.Batch, err error) {
	if b, err = a.get(r, q); err == nil {
		err = a.joins(r).Repair(r.Context(), q.ID)
	}
	return b, err
}

func (a API) flow(r *rest.Request, q *ID) (f contract.Flow, err error) {
	if _, err = a.get(r, q); err == nil {
		f, err = a.joins(r).Flow(r.Context(), q.ID)
	}
	if err == nil {
		err = rest.PermitTypes(r, joins.TypesOf(&f), false)
	}
	return f, err
}

func (a API) insert(r *rest.Request, _ *struct{}) (f contract.InsertedFlow, err error) {
	var document []byte
	var jobs []contract.Needs
	var ids []int64
	err = r.Read(func(text []byte) (err error) {
		document = text
		jobs, ids, err = usedBy(text)
		return err
	})
	if err == nil {
		err = a.permitUsed(r, jobs, ids)
	}
	if err == nil {
		f, err = a.joins(r).InsertFlow(r.Context(), document)
	}
	if err != nil {
		return f, err
	}
	a.Notify()
	r.Created(fmt.Sprintf("/v1/flows/%d", f.ID))
	f.Warnings = a.Warn(r.Context(), jobs...)
	return f, nil
}

// usedBy returns what the nodes and the callback of a document need, and the existing jobs whose results nodes may take.
func usedBy(document []byte) (jobs []contract.Needs, ids []int64, err error) {
	var flow joins.Document
	if err := json.Unmarshal(document, &flow); err != nil {
		return nil, nil, rest.InvalidRequest.Of(
			`a flow is a JSON object, for example {"nodes": [{"name": "load", "type": "load"}, {"name": "sum", "type": "sum", "after": ["load"]}]}`,
		)
	}
	if flow.Callback != nil {
		j, err := jobOf("the callback", flow.Callback)
		if err != nil {
			return nil, nil, err
		}
		jobs = append(jobs, j.needs())
	}
	for i, node := range flow.Nodes {
		j, err := jobOf(fmt.Sprintf("node %d of the document", i+1), node)
		if err != nil {
			return nil, nil, err
		}
		jobs = append(jobs, j.needs())
		for _, after := range j.After {
			if len(after) > 0 && after[0] == '"' { // the name of a node
				continue
			}
			id, err := strconv.ParseInt(string(after), 10, 64)
			if err != nil {
				return nil, nil, rest.InvalidRequest.Of(
					fmt.Sprintf(`node %d of the document: "after" contains names of nodes as strings, and ids of jobs as whole numbers`, i+1),
				)
			}
			ids = append(ids, id)
		}
	}
	return jobs, ids, nil
}

// permitUsed returns a problem if the caller may not use types, and those of existing jobs.
func (a API) permitUsed(r *rest.Request, jobs []contract.Needs, ids []int64) error {
	types := make([]string, 0, len(jobs))
	for i := range jobs {
		types = append(types, jobs[i].Type)
	}
	if len(ids) > 0 && r.Permitted() != nil {
		others, err := a.joins(r).Types(r.Context(), ids)
		if err != nil {
			return err
		}
		types = append(types, others...)
	}
	return rest.PermitTypes(r, types, false)
}

// NewFlow is the document of a flow. Postgres checks it.
type NewFlow struct {
	Name     string       `json:"name"` // 1 to 128 bytes.
	Callback *NewCallback `json:"callback"`
	Nodes    []NewNode    `json:"nodes" required:"true" minItems:"1" maxItems:"10000"`
}

// NewCallback is the job that runs after all nodes.
type NewCallback struct {
	contract.JobColumns

	RunWhen string `json:"run_when" enum:"done,ended,failed"` // When the callback runs.
}

// NewNode is a job of a flow.
type NewNode struct {
	contract.JobColumns

	Name  string `json:"name" required:"true"` // 1 to 128 bytes, unique in the flow.
	After []any  `json:"after"`                // Names of earlier nodes, and ids of existing jobs.
	// When it runs: all dependencies are done; always; one has failed or was cancelled. Otherwise it is cancelled.
	RunWhen      string `json:"run_when" enum:"done,ended,failed" default:"done"`
	TakesResults bool   `json:"takes_results"` // The payload gets inputs: the results of at most 100 dependencies by name.
}
