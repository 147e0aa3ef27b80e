package dispatcherd

// Key is the position of a queued job inside its lane. Lanes are ordered by
// RunAt, then ID, both ascending: the oldest goes first. The zero Key lies
// before every row.
type Key struct {
	RunAt int64 // microseconds since the Unix epoch, database clock
	ID    JobID
}

// Less reports whether k comes before l in a lane.
func (k Key) Less(l Key) bool {
	return k.RunAt < l.RunAt || (k.RunAt == l.RunAt && k.ID < l.ID)
}

// Compare is negative if k comes before l in a lane, positive if it comes after
// it, and 0 if they are the same.
func (k Key) Compare(l Key) int {
	switch {
	case k.Less(l):
		return -1
	case l.Less(k):
		return 1
	}
	return 0
}

// Lane asks for the pending jobs of one type and one priority.
type Lane struct {
	Type     string
	Priority Priority
	After    Key // only rows after it; the zero Key looks from the very beginning
	Before   Key // counts in a request with Look alone: only rows before it
	Limit    int // at most this many rows, ≥ 1
	Share    Share
	Foreign  bool // the rows that do not belong to Share, instead of those that do
	Crowd    bool // a hint, beside a Share: many rows before After, and so perhaps behind it, have its RunAt
}

// FetchRequest asks for the first rows of some lanes, all read in one
// snapshot. No lane is named twice; its own and its foreign rows count as two.
type FetchRequest struct {
	Lanes []Lane
	Look  bool // it may take long, so it has a connection of its own
}

// Candidate is one pending row.
type Candidate struct {
	Lane int // index into FetchRequest.Lanes
	Key  Key
}

// FetchResult answers a FetchRequest. Candidates come grouped by lane, in
// request order, inside a lane in key order, and hold everything a lane has
// up to its Limit, rows whose RunAt lies after DBNow included: a lane with
// fewer rows than its limit is known to be exhausted.
type FetchResult struct {
	Verdict    Verdict // OK or Refused; a read is never Unknown
	DBNow      int64   // the database clock at the snapshot, microseconds since the Unix epoch
	Candidates []Candidate
}

// Verdict says what became of a statement that was sent to Postgres.
type Verdict uint8

// The three verdicts.
const (
	OK      Verdict = iota // it was carried out and the answer arrived
	Refused                // it was certainly not carried out
	Unknown                // it may have been: the connection broke before the answer
)

// String returns "ok", "refused" or "unknown".
func (v Verdict) String() string { return [...]string{"ok", "refused", "unknown"}[v] }
