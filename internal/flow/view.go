package flow

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// The values of the column kind. A target without a row of batches has none.
const (
	kindFlow     = "flow"
	kindChildren = "children"
)

// A walk goes through all nodes of a flow, or all failed and cancelled members of a batch, in portions.
const (
	Retry  = "retry"  // failed and cancelled jobs run again
	Repair = "repair" // counters are counted again
)

// Batch is a row of the table batches. The step that reads it holds its lock.
type Batch struct {
	ID          dispatcherd.JobID // also of the callback, or of the job whose children these are
	Kind        string
	RunWhen     string
	Callback    bool
	Sealed      bool
	Ended       bool
	Open        int // members; 0 before the seal, which counts it
	Done        int
	Failed      int
	Cancelled   int
	Reason      string // the first member that failed or was cancelled
	CancelledBy string
	Walk        string // that is under way: messages wait, no node is released, and the target does not end
	Walked      int64  // the last place or member that it has handled
}

// Final is the record of an end. Of a job that has not ended, or runs again, the status is pending.
type Final struct {
	Status  dispatcherd.Status
	EndedAt time.Time // it finds the row in one partition
	Size    int       // bytes of the result as text
}

func (f Final) open() int { return number(f.Status == dispatcherd.Pending) }

func (f Final) bad() int {
	return number(f.Status == dispatcherd.Failed || f.Status == dispatcherd.Cancelled)
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Ended is a job with the record of its end.
type Ended struct {
	ID dispatcherd.JobID
	Final
}

// Record is what a target has counted of a job that a message lists.
type Record struct {
	Ended

	Outside bool // it is no member

	seen, changed bool
}

// Node is a row of the table nodes.
type Node struct {
	ID           dispatcherd.JobID
	RunWhen      string
	TakesResults bool
	Open, Bad    int // dependencies
	Inputs       int // bytes of their results
	Reason       string
	Ready        bool // it was released or ended
	Waiting      int  // bytes of the payload of its waiting row, which the step has locked; NoRow; Locked

	changed bool
}

// Values of Node.Waiting.
const (
	NoRow  = -1
	Locked = -2 // by another transaction
)

// Message is a row of the table ends. One without jobs asks for a step.
type Message struct {
	Target dispatcherd.JobID
	ID     int64
	Done   int     // members that are done and have no record
	Jobs   []Ended // members with a record, or the job with the id of the target
	Part   int64   // of the first of Jobs: how many nodes, or up to which flow, have been told
	Walk   string  // that begins
}

// Edge says which nodes of the flow depend on a job that a message lists.
type Edge struct {
	Before dispatcherd.JobID
	After  []dispatcherd.JobID // the nodes behind Message.Part that were read
	More   bool                // there are others behind them
}

// Walked is a node of a flow, or a failed or cancelled member of a batch, to which a walk has come.
type Walked struct {
	Ended
	Place  int64
	Exists bool // a retry can move its row, or, in a repair, it has a row or an uncounted end
	Nested bool // it is the callback of a batch
}

// Outside is a job outside the flow whose end is not reported yet. The step that reads it has locked its row.
type Outside struct {
	Ended
	Gone bool // it has no row
	Busy bool // its row is locked, or messages about it are under way
}

// Member is one of a target that is cancelled.
type Member struct {
	ID      dispatcherd.JobID
	Waiting int  // as Node.Waiting, of a row that is pending or waiting
	Runs    bool // and was not asked to end
	Target  bool // it has members itself
}

// View is what a step has read about one target. Records, Edges and Nodes are sorted by id.
type View struct {
	Batch        Batch
	Messages     []Message
	MoreMessages bool
	Records      []Record // one for each listed job
	Edges        []Edge
	Flows        []dispatcherd.JobID // that depend on the job with the id of the target, behind Message.Part of the first message about it
	MoreFlows    bool
	Nodes        []Node // those in Edges, and, if a message asks for a step, the first ones that are to be released
	MoreNodes    bool   // there are others to be released
	Alive        bool   // the job with the id of the target has not ended
	Asked        string // who asked to cancel it
	Waiting      int    // as Node.Waiting, of the callback
	CallbackBad  *Ended // the callback, if it failed or was cancelled
	Walk         []Walked
	MoreWalk     bool
	Members      int      // that have not ended according to rows and messages: for a seal, and the repair of what is no flow; else Open
	Cancel       []Member // if View.Looks: pending, waiting and running members of a target that is cancelled, or may be
	MoreCancel   bool     // there are others
	NoInserts    bool     // no transaction inserts members
	Outside      []Outside
	MoreOutside  bool
}

// Looks reports whether a message asks for a step, is about the job with the id of the target, or says that a member runs again.
func (v *View) Looks() bool {
	return slices.ContainsFunc(v.Messages, func(m Message) bool {
		return len(m.Jobs)+m.Done == 0 ||
			slices.ContainsFunc(m.Jobs, func(e Ended) bool { return e.ID == v.Batch.ID || e.Status == dispatcherd.Pending })
	})
}

// Limits bound what a round of a step reads and writes, and how long rounds follow each other in one transaction.
type Limits struct {
	Items int           // jobs, dependants and rows moved, each
	Bytes int           // of payloads and results
	Time  time.Duration // no round begins later than this after the begin of the step, except the first one
}

// Stop ends a pending or waiting row without a run.
type Stop struct {
	ID     dispatcherd.JobID
	Status dispatcherd.Status
	By     string // of a cancelled one
	Reason string
}

// Again is an ended job whose row waits, or is pending, again.
type Again struct {
	Ended
	To dispatcherd.Status
}

// Change is what a step decides.
type Change struct {
	Batch   Batch
	Taken   []int64             // messages that are deleted
	Rest    *Message            // what is left of the message with the same id
	Nodes   []Node              // changed ones
	Records []Ended             // changed ones
	Release []dispatcherd.JobID // waiting rows that become pending
	Inputs  bool                // some of them take results
	Stop    []Stop
	Again   []Again
	Recount [2]int64            // counters of the nodes in these places, from the records of their dependencies; 0 = none
	Linked  []dispatcherd.JobID // outside dependencies whose ends will be reported
	Send    []Message
	Ask     []dispatcherd.JobID // running rows that shall end
	Look    bool                // a message asks for another step
	Busy    bool                // another transaction must end first
	Repairs bool                // the counters that Recount changes were wrong
	Wrong   int                 // other counters that were wrong

	more bool // messages were not read
}

// Left reports whether another step of the target has something to do.
func (c *Change) Left() bool { return c.Look || c.Rest != nil || c.more || len(c.Stop) > 0 }
