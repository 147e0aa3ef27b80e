package dispatcherd

import "time"

// Token marks the rows one claim took, so that a claim whose answer was lost
// can be decided by reading. Made by the dispatcher, never reused.
type Token [16]byte

// ClaimRequest asks to take pending rows in one statement: those that are
// still pending and due become running with the next attempt, this dispatcher
// as owner and Token as mark; the others are left as they are.
type ClaimRequest struct {
	Token Token
	IDs   []JobID  // ascending, no duplicates, all positive
	For   []Mark   // the session that each of IDs is for, in the same order
	Types []string // the distinct types of those jobs, sorted: the table may be sharded by type
}

// Won is one row that a claim took.
type Won struct {
	ID          JobID
	Attempt     Attempt
	MaxAttempts int32         // failures after which the job is failed for good, ≥ 1
	Failures    int32         // failed attempts so far
	Crashes     int32         // attempts so far that ended with the death of worker or dispatcher
	Timeout     time.Duration // the job's own limit for one attempt; 0 = none given
	Payload     []byte        // JSON, one line
}

// ClaimResult answers a ClaimRequest. With Verdict OK the requested ids that
// are not in Won were lost: another dispatcher was faster, or the job was
// cancelled, or is not yet due. With Refused nothing was taken. With Unknown
// the claim must be resolved by its token.
type ClaimResult struct {
	Verdict Verdict
	Won     []Won // in no particular order
}
