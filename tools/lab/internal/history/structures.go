package history

import "slices"

// Types of jobs of structures: batches, flows and parents.
const (
	Member   = "member"
	Node     = "node"
	Callback = "callback"
	Parent   = "parent"
	Child    = "child"
)

// Chunk is the type of the chunks of fan-outs. Its worker returns the number of items.
const Chunk = "chunk"

// Hostile is the type of the jobs of a hostile user, which are not judged.
const Hostile = "hostile"

// Structured are the types of jobs of structures.
var Structured = []string{Member, Node, Callback, Parent, Child}

// Structures are what Postgres says about batches, flows and parents. Times are in microseconds, by the clock of the database; 0 = never.
type Structures struct {
	Jobs  []Part
	Joins []Join
}

// Part is the row of a job of a structure.
type Part struct {
	Job      int64
	Parent   int64 // batch, flow or job that it belongs to; 0 = none
	Type     string
	Status   string
	By       string // who cancelled it
	Started  int64  // begin of its first attempt
	Ended    int64
	Released int // how often it stopped waiting
}

// Join waits for the ends of other jobs.
type Join struct {
	ID        int64
	Kind      string // batch, flow, children or node
	Callback  bool   // the job with this id waits; a node always does
	When      string // done, ended or failed: when this job runs
	DependsOn []int64
	Opened    int64 // of a batch or flow
	Cancelled bool  // it, or the flow of the node, was cancelled
	Fired     int64 // all have ended, and the job was released or cancelled
	// How the jobs that it waited for have ended, as counted.
	Done, Failed, Stopped int
}

// IsStructured reports whether a job of this type belongs to a structure.
func IsStructured(typ string) bool { return slices.Contains(Structured, typ) }
