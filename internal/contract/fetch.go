package contract

import (
	"cmp"

	"github.com/dispatcherd/dispatcherd"
)

// Key is the position of a queued job in its lane. Lanes are ordered by RunAt, then
// by ID, both ascending, so the oldest job is first. The zero Key is before every
// row.
type Key struct {
	RunAt int64 // microseconds since the Unix epoch, database clock
	ID    dispatcherd.JobID
}

// Less reports whether k comes before l in a lane.
func (k Key) Less(l Key) bool {
	return k.RunAt < l.RunAt || (k.RunAt == l.RunAt && k.ID < l.ID)
}

// Compare is negative if k comes before l in a lane, positive if it comes after
// l, and 0 if both are equal.
func (k Key) Compare(l Key) int {
	return cmp.Or(cmp.Compare(k.RunAt, l.RunAt), cmp.Compare(k.ID, l.ID))
}

// LaneQuery asks for the pending jobs of one type, priority and duration class.
type LaneQuery struct {
	Type     string
	Priority dispatcherd.Priority
	Class    dispatcherd.DurationClass
	After    Key // only rows after it; the zero Key reads from the beginning
	Before   Key // only rows before it; used by requests with Backfill only
	Limit    int // at most this many rows, ≥ 1
	Share    Share
	NonLocal bool // read the rows outside Share instead of those inside
}

// FetchRequest asks for the first rows of some lanes, all read in one snapshot. No
// lane occurs twice. The local and the non-local rows of a lane count as two lanes.
type FetchRequest struct {
	Lanes      []LaneQuery
	Classes    []string // types of which the answer names the lanes of jobs with an expected duration
	Backfill   bool     // a backfill scan: it may take long and has a connection of its own
	SkipLocked bool     // leave out the rows that another transaction has locked
}

// Candidate is one pending row.
type Candidate struct {
	Lane int // index into FetchRequest.Lanes
	Key  Key
}

// FetchResult answers a FetchRequest. Candidates are grouped by lane in the order
// of the request. Within a lane they are in key order. A lane returns all of its
// rows that are not left out up to its Limit, including rows whose RunAt is later than DBNow. So a lane
// with fewer rows than its Limit is exhausted.
type FetchResult struct {
	Verdict    Verdict // OK or Refused; a read never has an unknown outcome
	DBNow      int64   // the database clock at the snapshot, microseconds since the Unix epoch
	Candidates []Candidate
	Named      []NamedLane // of req.Classes, in the order of the types
}

// NamedLane is a lane of jobs with an expected duration that contains a pending row, due or not. If Postgres refuses to list the
// lanes of a type, all of its possible lanes are named.
type NamedLane struct {
	Type     int // index into FetchRequest.Classes
	Priority dispatcherd.Priority
	Class    dispatcherd.DurationClass
}
