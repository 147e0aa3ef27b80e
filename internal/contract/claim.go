package contract

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Token marks the rows that one claim took, so that a claim with an unknown
// outcome can be resolved by reading. The dispatcher generates it and never
// reuses it.
type Token [16]byte

// ClaimRequest asks to take pending rows in one statement. Rows that are still
// pending and due become running, with the next attempt, this dispatcher as
// owner, and Token as mark. Other rows do not change.
type ClaimRequest struct {
	Token    Token
	IDs      []dispatcherd.JobID // ascending, no duplicates, all positive
	Sessions []Fingerprint       // the session that each of IDs is for, in the same order
	Types    []string            // the distinct types of those jobs, sorted: the table may be sharded by type
}

// Won is one row that a claim took.
type Won struct {
	ID          dispatcherd.JobID
	Attempt     dispatcherd.Attempt
	MaxAttempts int32         // number of failures after which the job fails permanently, ≥ 1
	Failures    int32         // failed attempts so far
	Crashes     int32         // attempts so far that ended by the death of worker or dispatcher
	Timeout     time.Duration // the job's own limit for one attempt; 0 = none given
	Payload     []byte        // JSON, one line
	Unfit       string        // reason why no worker can be sent the payload; "" = the payload can be sent; otherwise Payload is empty
}

// ClaimResult answers a ClaimRequest. With Verdict OK the requested ids that are
// not in Won were lost: another dispatcher claimed them first, the job was
// cancelled, or it is not yet due. With Refused nothing was taken. With Unknown
// the claim must be resolved by its token.
type ClaimResult struct {
	Verdict  Verdict
	OldEpoch bool  // with Refused: Postgres answered, but a Resolve of another claim had raised the epoch
	Won      []Won // in no particular order
}
