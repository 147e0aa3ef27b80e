package dispatcherd

import "time"

// Mark is the fingerprint of a session's nonce. A claim notes for each job the
// mark of the session that it is for. Whoever presents the job later, to this
// dispatcher or to another one, must know the nonce behind it; from the note
// alone nobody can tell the nonce. Zero is no session.
type Mark int64

// Presented is an execution that a worker brings along from an earlier session.
type Presented struct {
	ID      JobID
	Attempt Attempt
	From    Mark // of the session in which it began
	To      Mark // noted from now on; as From, unless the job was sent to another session than the one it was claimed for
	Own     bool // it runs here already, and its note is to be renewed
}

// AdoptRequest asks to take over rows that still run under the presented
// attempts, whoever their dispatcher is: it may be dead, cut off, or alive.
// Its own later words about them are stale. The same request may be sent
// again: what an earlier copy took counts as taken.
type AdoptRequest struct {
	Token Token
	Jobs  []Presented // ascending by ID, no duplicates, all positive
}

// Adopted is a row that was taken over.
type Adopted struct {
	Won      // without payload
	Type     string
	Priority Priority
	RunAt    int64         // microseconds since the Unix epoch, database clock
	Ran      time.Duration // since the attempt was claimed, ≥ 0
}

// AdoptResult answers an AdoptRequest. With Verdict OK the presented jobs that
// are in neither list are not to be had: the attempt is over, or it was never
// handed to that session. Those in Busy are locked by somebody and may be asked
// about in another request. With another Verdict this one must be sent again.
type AdoptResult struct {
	Verdict Verdict
	Jobs    []Adopted // ascending by ID
	Busy    []JobID   // ascending
}
