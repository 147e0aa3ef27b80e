package contract

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// ResumeOffer is an execution that a worker began in an earlier session and
// offers to continue.
type ResumeOffer struct {
	ID      dispatcherd.JobID
	Attempt dispatcherd.Attempt
	From    Fingerprint // of the session in which the execution began
	To      Fingerprint // recorded from now on: From.WithGeneration, or the fingerprint of the session that the job was sent to if it was claimed for another one
	Renewal bool        // the job already runs under this dispatcher; only the recorded fingerprint changes
}

// Follows reports whether a row that records the given fingerprint may be taken.
// It may if the row records the session in which the execution began, or an
// earlier resume offer of it. A delayed offer finds the fingerprint of the offer
// that superseded it.
func (o *ResumeOffer) Follows(recorded Fingerprint) bool {
	return recorded == o.From || o.To.Supersedes(recorded, o.From)
}

// AdoptRequest asks to take over rows that still run under the offered attempts.
// It does not matter whether their dispatcher is lost, disconnected or alive:
// what that dispatcher later reports about them is stale. The same request may be
// sent again; rows that an earlier copy took count as taken.
type AdoptRequest struct {
	Token Token
	Jobs  []ResumeOffer // ascending by ID, no duplicates, all positive
}

// Adopted is a row that was taken over.
type Adopted struct {
	Won      // without payload
	Type     string
	Priority dispatcherd.Priority
	RunAt    int64         // microseconds since the Unix epoch, database clock
	Ran      time.Duration // since the attempt was claimed, ≥ 0
}

// AdoptResult answers an AdoptRequest. With Verdict OK the offered jobs in
// neither list cannot be adopted: the attempt has ended, the job was never sent
// to that session, or a later offer superseded this one. The rows of the jobs in
// Busy are locked; another request may ask for them. With another Verdict the
// request must be sent again.
type AdoptResult struct {
	Verdict Verdict
	Jobs    []Adopted           // ascending by ID
	Busy    []dispatcherd.JobID // ascending
}
