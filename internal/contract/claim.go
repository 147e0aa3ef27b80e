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
	Lane     Lane                // of all of those jobs when they were fetched; zero if they have several
}

// Lane is a type with a priority and a duration class. The zero Lane is none.
type Lane struct {
	Type     string
	Priority dispatcherd.Priority
	Class    dispatcherd.DurationClass // not set in a claim
}

// Delivery is what a worker is told about a job and no decision reads. One value goes from the row through the core to the frame.
type Delivery struct {
	Payload []byte // JSON, one line
	Fence   int64  // of a job with keys: grows with each admission of one of its keys; 0 = none

	Traceparent string // W3C trace context of the producer; "" = none
}

// Won is one row that a claim took.
type Won struct {
	Delivery

	ID          dispatcherd.JobID
	Type        string               // of the row now; an operator may have changed it since the fetch
	Priority    dispatcherd.Priority // likewise
	Attempt     dispatcherd.Attempt
	MaxAttempts int32         // number of failures after which the job fails permanently; 0 = that of its type
	Backoff     string        // how long it waits after a failure; "" = as its type says
	Failures    int32         // failed attempts so far
	Crashes     int32         // attempts so far that ended by the death of worker or dispatcher
	Timeout     time.Duration // the job's own limit for one attempt; 0 = none given
	Unfit       string        // reason why no worker can be sent the payload; "" = the payload can be sent; otherwise Payload is empty
	Admitted    time.Duration // of a job with keys: how long ago it got its permits, by the database clock
	Left        time.Duration // of a durable request: time until its deadline, by the database clock; negative = passed; 0 = no deadline
	// Target is the batch, flow or parent that counts its end, or the job itself. Negative: other jobs wait for the end of the job, too.
	Target dispatcherd.JobID
}

// DeadlinePassed is the error of a durable request that was claimed after its deadline.
const DeadlinePassed = "the request was not done in time; no attempt starts after its deadline"

// AsideTime is how long a row that Postgres refused, or a lane that it could not read, is left out of later statements.
const AsideTime = time.Minute

// MaxAside bounds the rows and lanes that are left out. Further ones are in later statements again.
const MaxAside = 10_000

// Unclaimable is a pending row that Postgres refused to claim in a statement of its
// own.
type Unclaimable struct {
	ID     dispatcherd.JobID
	Reason string // message and SQLSTATE of Postgres
}

// ClaimResult answers a ClaimRequest. With Verdict OK the requested ids that are in
// no list were lost: another dispatcher claimed them first, the job was cancelled,
// or it is not yet due. With Refused nothing was taken. With Unknown the claim must
// be resolved by its token.
//
// A claim does not read large payloads, so that its answer is bounded. The rows in
// Loading are taken, but their payloads must be read with a LoadRequest.
type ClaimResult struct {
	Verdict     Verdict
	OldEpoch    bool          // with Refused: Postgres answered, but a Resolve of another claim had raised the epoch
	Won         []Won         // in no particular order
	Loading     []Won         // without payload, in no particular order
	Unclaimable []Unclaimable // still pending; also with Refused
}

// Rows returns the number of rows that the claim took.
func (r *ClaimResult) Rows() int { return len(r.Won) + len(r.Loading) }

// LoadRequest asks for the payloads of rows that this dispatcher runs. The request
// changes nothing and may be sent again.
type LoadRequest struct {
	Rows []Won // without payload
}

// LoadResult answers a part of a LoadRequest. With a verdict other than OK nothing
// was read.
type LoadResult struct {
	Verdict Verdict
	Won     []Won               // with payload, or with the reason why there is none
	Lost    []dispatcherd.JobID // no longer run by this dispatcher under that attempt
	Rest    []Won               // not read yet: the caller asks again
}
