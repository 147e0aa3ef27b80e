package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
)

// InsertedFlow names the rows of a new flow: its id, and the ids of its nodes by name.
type InsertedFlow = contract.InsertedFlow

// Flow is a graph of jobs, its nodes. A node runs when its dependencies have ended. The zero Flow has no nodes.
type Flow struct {
	Name     string // at most 128 bytes; need not be unique
	Callback *Job   // runs once, after all nodes have ended, as that of a [Batch]; nil = none
	RunWhen  string // of the callback

	nodes []*Node
}

// Node is a job of a flow.
type Node struct {
	name         string // unique in the flow
	job          Job
	after        []any // names of earlier nodes, and ids of existing jobs
	runWhen      string
	takesResults bool
	bad          error // of After
}

// Add adds a node. Its name, of 1 to 128 bytes, is unique in the flow. The job has no Parent, UniqueKey and UniqueFor.
func (f *Flow) Add(name string, j Job) *Node {
	n := &Node{name: name, job: j}
	f.nodes = append(f.nodes, n)
	return n
}

var errNoNode = errors.New("After got a nil node")

// After adds dependencies: nodes that were added to the flow earlier.
func (n *Node) After(nodes ...*Node) *Node {
	for _, d := range nodes {
		if d == nil {
			n.bad = errNoNode
			continue
		}
		n.after = append(n.after, d.name)
	}
	return n
}

// AfterJobs adds jobs of the table as dependencies. They may have ended.
func (n *Node) AfterJobs(ids ...dispatcherd.JobID) *Node {
	for _, id := range ids {
		n.after = append(n.after, id)
	}
	return n
}

// RunWhen says when the node runs. Otherwise it is cancelled, and so are the nodes after it that need it.
func (n *Node) RunWhen(when string) *Node {
	n.runWhen = when
	return n
}

// TakesResults adds "inputs" to the payload, which must be an object: the results of the dependencies by name, at most 100 and
// together 1 MB.
func (n *Node) TakesResults() *Node {
	n.takesResults = true
	return n
}

type callbackObject struct {
	contract.JobColumns

	RunWhen string `json:"run_when,omitempty"`
}

type nodeObject struct {
	contract.JobColumns

	Name         string `json:"name"`
	After        []any  `json:"after,omitempty"`
	RunWhen      string `json:"run_when,omitempty"`
	TakesResults bool   `json:"takes_results,omitempty"`
}

// columns returns the values of a row without parent and unique key.
func columns(row []any) contract.JobColumns {
	return contract.JobColumns{
		Type: row[0].(string), Payload: json.RawMessage(row[1].(string)), Priority: dispatcherd.Priority(row[2].(int16)),
		MaxAttempts: given[int16](row[3]), TimeoutMS: given[int32](row[4]), RunAt: given[time.Time](row[5]), Keys: given[string](row[6]),
		ExpectedMS: given[int32](row[9]), Traceparent: given[string](row[10]), Backoff: given[string](row[11]),
	}
}

// given returns the value of a column, or nil for its default.
func given[T any](value any) *T {
	if v, ok := value.(T); ok {
		return &v
	}
	return nil
}

var errMember = errors.New("a node and a callback have no Parent, UniqueKey and UniqueFor")

// member is columns for a node or a callback.
func (j *Job) member(name string) (c contract.JobColumns, err error) {
	row, err := j.row()
	if j.Parent != 0 || j.UniqueKey != "" || j.UniqueFor != 0 {
		err = errMember
	}
	if err != nil {
		return c, about(name, err)
	}
	return columns(row), nil
}

// MarshalJSON returns the document of the flow, which the SQL function insert_flow, the API and the command line take.
func (f *Flow) MarshalJSON() ([]byte, error) {
	var err error
	var document struct {
		Name     string          `json:"name,omitempty"`
		Callback *callbackObject `json:"callback,omitempty"`
		Nodes    []nodeObject    `json:"nodes"`
	}
	document.Name, document.Nodes = f.Name, make([]nodeObject, len(f.nodes))
	if f.Callback != nil {
		document.Callback = &callbackObject{RunWhen: f.RunWhen}
		if document.Callback.JobColumns, err = f.Callback.member("callback"); err != nil {
			return nil, err
		}
	}
	for i, n := range f.nodes {
		o, err := n.job.member("node " + n.name)
		if err == nil {
			err = about("node "+n.name, n.bad)
		}
		if err != nil {
			return nil, err
		}
		document.Nodes[i] = nodeObject{JobColumns: o, Name: n.name, After: n.after, RunWhen: n.runWhen, TakesResults: n.takesResults}
	}
	return json.Marshal(document)
}

// Insert inserts the flow as a whole, or nothing if one of its nodes breaks a rule; the error names the node and the rule. In a
// transaction, the flow exists if and only if the caller commits. Use [SQLTx] for database/sql.
func (f *Flow) Insert(ctx context.Context, db Querier) (InsertedFlow, error) {
	document, err := f.MarshalJSON()
	if err != nil {
		return InsertedFlow{}, about("inserting a flow", err)
	}
	inserted, err := joins.Joins{DB: db}.InsertFlow(ctx, document)
	return inserted, about("inserting a flow", err)
}
