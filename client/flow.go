package client

import (
	"context"
	"encoding/json"
	"errors"

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

// object returns the columns of a row by name, without parent and unique key. Those with the default of the table are absent.
func object(row []any) map[string]any {
	o := map[string]any{}
	for i, name := range contract.Columns {
		if row[i] != nil {
			o[name] = row[i]
		}
	}
	o["payload"] = json.RawMessage(row[1].(string))
	delete(o, "unique_key")
	return o
}

var errMember = errors.New("a node and a callback have no Parent, UniqueKey and UniqueFor")

// member is object for a node or a callback, and adds when it runs.
func (j *Job) member(name, runWhen string) (map[string]any, error) {
	row, err := j.row()
	if j.Parent != 0 || j.UniqueKey != "" || j.UniqueFor != 0 {
		err = errMember
	}
	if err != nil {
		return nil, about(name, err)
	}
	o := object(row)
	if runWhen != "" {
		o["run_when"] = runWhen
	}
	return o, nil
}

// MarshalJSON returns the document of the flow, which the SQL function insert_flow, the API and the command line take.
func (f *Flow) MarshalJSON() ([]byte, error) {
	var err error
	var document struct {
		Name     string           `json:"name,omitempty"`
		Callback map[string]any   `json:"callback,omitempty"`
		Nodes    []map[string]any `json:"nodes"`
	}
	document.Name, document.Nodes = f.Name, make([]map[string]any, len(f.nodes))
	if f.Callback != nil {
		if document.Callback, err = f.Callback.member("callback", f.RunWhen); err != nil {
			return nil, err
		}
	}
	for i, n := range f.nodes {
		o, err := n.job.member("node "+n.name, n.runWhen)
		if err == nil {
			err = about("node "+n.name, n.bad)
		}
		if err != nil {
			return nil, err
		}
		o["name"] = n.name
		if n.after != nil {
			o["after"] = n.after
		}
		if n.takesResults {
			o["takes_results"] = true
		}
		document.Nodes[i] = o
	}
	return json.Marshal(document)
}

// Insert inserts the flow as a whole, or nothing if one of its nodes breaks a rule; the error names the node and the rule. In a
// transaction, the flow exists if and only if the caller commits. Use [SQLTx] for database/sql.
func (f *Flow) Insert(ctx context.Context, db Querier) (inserted InsertedFlow, err error) {
	document, err := f.MarshalJSON()
	if err == nil {
		inserted, err = joins.Joins{DB: db}.InsertFlow(ctx, document)
	}
	return inserted, about("inserting a flow", err)
}
