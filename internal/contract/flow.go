package contract

import (
	"encoding/json"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Values of Batch.Kind.
const (
	BatchKind    = "batch"
	FlowKind     = "flow"
	ChildrenKind = "children" // of a running job
)

// Values of Batch.State.
const (
	BatchOpen      = "open"   // producers may add members
	BatchSealed    = "sealed" // it has all of its members, and not all of them have ended
	BatchEnded     = "ended"
	BatchCancelled = "cancelled"
)

// BatchStates lists the values of Batch.State.
var BatchStates = []string{BatchOpen, BatchSealed, BatchEnded, BatchCancelled}

// Values of run_when: when a callback or a node of a flow runs. Otherwise it is cancelled.
const (
	RunWhenDone   = "done"   // all members or dependencies are done
	RunWhenEnded  = "ended"  // always
	RunWhenFailed = "failed" // one of them has failed or was cancelled
)

// Batch is a row of the table batches: a batch, a flow, or the children of a job.
type Batch struct {
	ID   dispatcherd.JobID `json:"id"`                              // also that of the callback
	Kind string            `json:"kind" enum:"batch,flow,children"` // children: those of a running job
	Name string            `json:"name,omitempty"`                  // need not be unique
	// sealed: no members may be added, and not all have ended
	State string `json:"state" enum:"open,sealed,ended,cancelled"`
	// a job with the same id runs, or is cancelled, when all members have ended
	Callback bool `json:"callback"`
	// all members are done; always; one has failed or was cancelled
	RunWhen      string `json:"run_when,omitempty" enum:"done,ended,failed"`
	CallbackType string `json:"callback_type,omitempty"` // not in lists
	// not in lists; absent: there is none, or its row was deleted
	CallbackStatus dispatcherd.Status `json:"callback_status,omitempty"`
	OpenedAt       time.Time          `json:"opened_at"`
	SealedAt       *time.Time         `json:"sealed_at,omitempty"`    // when it got its last member
	EndedAt        *time.Time         `json:"ended_at,omitempty"`     // when its callback became pending or was cancelled
	Open           *int               `json:"open,omitempty"`         // members that have not ended; absent while the batch is open
	Done           int                `json:"done"`                   // members
	Failed         int                `json:"failed"`                 // members
	Cancelled      int                `json:"cancelled"`              // members
	CancelledBy    string             `json:"cancelled_by,omitempty"` // who cancelled it
	Aside          string             `json:"aside,omitempty"`        // why dispatchers do nothing for it until a repair
	Owner          string             `json:"owner,omitempty"`        // the role of Postgres that may use it; absent: the dispatchers
}

// Conceal implements Confidential.
func (b *Batch) Conceal() { b.Aside = "" }

// BatchFilter selects a page of batches, the newest first.
type BatchFilter struct {
	Kind, State string            // "" = any
	Before      dispatcherd.JobID // only smaller ids; 0 = from the newest
	Limit       int
}

// NewBatch describes a batch to open.
type NewBatch struct {
	// The job that runs after all members. It has no parent, unique_key and unique_for.
	Callback json.RawMessage `json:"callback,omitempty"`
	RunWhen  string          `json:"run_when,omitempty" enum:"done,ended,failed" default:"done"` // when the callback runs
	Name     string          `json:"name,omitempty" minLength:"1" maxLength:"128"`               // need not be unique
	// an open batch of which the callback is a member
	Parent dispatcherd.JobID `json:"parent,omitempty" minimum:"1"`
}

// Sealed is the state of a batch after its seal.
type Sealed struct {
	Open      int  `json:"open"` // members that have not ended
	Done      int  `json:"done"`
	Failed    int  `json:"failed"`
	Cancelled int  `json:"cancelled"`
	Fired     bool `json:"fired"` // all members have ended
}

// Flow is a flow with its nodes, in the order of its document.
type Flow struct {
	Batch

	Nodes  []Node    `json:"nodes"`
	ReadAt time.Time `json:"read_at,omitzero"` // when the nodes were read, by the clock of Postgres
}

// Conceal implements Confidential.
func (f *Flow) Conceal() {
	f.Batch.Conceal()
	for i := range f.Nodes {
		f.Nodes[i].Error = ""
	}
}

// Node is a row of the table nodes, with the state of its job.
type Node struct {
	ID           dispatcherd.JobID   `json:"id"`
	Name         string              `json:"name"`
	Type         string              `json:"type,omitempty"`
	Status       dispatcherd.Status  `json:"status,omitempty"` // absent: its row was deleted
	RunWhen      string              `json:"run_when" enum:"done,ended,failed"`
	TakesResults bool                `json:"takes_results,omitempty"`
	After        []dispatcherd.JobID `json:"after"`                // its dependencies, the first 100
	Dependencies int                 `json:"dependencies"`         // their number
	Open         int                 `json:"open"`                 // of them, those that have not ended
	ReadyAt      *time.Time          `json:"ready_at,omitempty"`   // when all dependencies had ended
	StartedAt    *time.Time          `json:"started_at,omitempty"` // of the last attempt
	FinishedAt   *time.Time          `json:"finished_at,omitempty"`
	Error        string              `json:"error,omitempty"` // the latest one, the first 200 characters
}

// InsertedFlow names the rows of a new flow.
type InsertedFlow struct {
	ID    dispatcherd.JobID            `json:"id"`
	Nodes map[string]dispatcherd.JobID `json:"nodes"` // by name

	Warnings []string `json:"warnings,omitempty"` // why jobs cannot run now, or never can
}

// CancelledTree is what the cancellation of a batch, flow or job changed.
type CancelledTree struct {
	Cancelled int `json:"cancelled"` // jobs that ended at once
	Running   int `json:"running"`   // jobs whose workers are asked to stop
}

// RetriedTree is what the retry of a batch or flow changed. The members of batches that are members are not counted.
type RetriedTree struct {
	Changed int      `json:"changed"`           // jobs that run again, now or after others
	Skipped int      `json:"skipped,omitempty"` // failed and cancelled jobs that do not
	Why     []string `json:"why,omitempty"`     // how many of them for which reason
}

// Dependencies says what a waiting job waits for.
type Dependencies struct {
	Batch bool              `json:"batch"`           // the job is the callback of a batch or flow; otherwise a node
	Flow  dispatcherd.JobID `json:"flow,omitempty"`  // of the node
	Left  *int              `json:"left,omitempty"`  // members or dependencies that have not ended; absent for an open batch
	Aside string            `json:"aside,omitempty"` // why dispatchers do nothing for the batch or flow until a repair
	First []Dependency      `json:"first"`           // of them, at most 10
}

// Dependency is a job that has not ended.
type Dependency struct {
	ID     dispatcherd.JobID  `json:"id"`
	Name   string             `json:"name,omitempty"` // of a node
	Type   string             `json:"type"`
	Status dispatcherd.Status `json:"status"`
}
