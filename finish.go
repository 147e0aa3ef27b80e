package dispatcherd

import "time"

// Outcome is the way an attempt ended.
type Outcome uint8

// The outcomes. All transitions are fenced: they apply only while the row is
// running under the same dispatcher and attempt.
const (
	Succeeded   Outcome = iota // → done, with a result
	Retry                      // → pending, run_at = now + Delay, one more failure
	FailedFinal                // → failed, with one more failure
	CancelledBy                // → cancelled, on request
	Released                   // → pending at once, order kept, nobody's fault: the attempt never started, or was interrupted by a shutdown
	Crashed                    // → pending at once, order kept, one more crash
	Quarantined                // → failed, with one more crash: it brought down too many workers
	Parted                     // → pending, run_at = now + Delay, one more crash: its worker died, and other jobs there were as suspect as this one
)

// String returns the outcome's name as used in logs and metrics.
func (o Outcome) String() string {
	return [...]string{"done", "retry", "failed", "cancelled", "released", "crashed", "quarantined", "parted"}[o]
}

// Final reports whether the job leaves the hot table with this outcome.
func (o Outcome) Final() bool {
	return o == Succeeded || o == FailedFinal || o == CancelledBy || o == Quarantined
}

// Finish ends one attempt of one row.
type Finish struct {
	ID      JobID
	Attempt Attempt
	Outcome Outcome
	Result  []byte        // JSON or nil; Succeeded only
	Error   string        // at most MaxErrorLength bytes; what the worker or the dispatcher says went wrong
	Delay   time.Duration // Retry and Parted only, ≥ 0
}

// FinishRequest ends many attempts in one statement, each on its own: a stale
// one does not disturb the others. With Again set the same items were sent
// before with an unknown verdict, so an item that finds its row already ended
// by this very attempt counts as carried out.
type FinishRequest struct {
	Items []Finish // ascending by ID, no duplicates
	Again bool
}

// FinishResult answers a FinishRequest. With Verdict OK the items in Stale
// changed nothing: the row is no longer running under that attempt and
// dispatcher. With Refused and Unknown the whole request must be sent again.
type FinishResult struct {
	Verdict Verdict
	Stale   []JobID // ascending
}
