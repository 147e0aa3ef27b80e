package contract

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Outcome is the way in which an attempt ended.
type Outcome uint8

// The outcomes. All transitions are fenced: they apply only while the row is
// running under the same dispatcher and attempt.
const (
	Succeeded   Outcome = iota // → done, with a result
	Retry                      // → pending, run_at = now + Delay, one more failure
	FailedFinal                // → failed, with one more failure
	Cancelled                  // → cancelled, on request
	Released                   // → pending at once, order kept, no failure: the attempt never started, or a shutdown interrupted it
	Crashed                    // → pending at once, order kept, one more crash
	Quarantined                // → failed, with one more crash: the job crashed too many workers
	// Isolated → pending, run_at = now + Delay, one more crash: other jobs of the dead worker are equally likely to be the
	// cause.
	Isolated
)

// String returns the outcome's name as used in logs and metrics.
func (o Outcome) String() string {
	return [...]string{"done", "retry", "failed", "cancelled", "released", "crashed", "quarantined", "isolated"}[o]
}

// Status returns the status of the row after the outcome.
func (o Outcome) Status() dispatcherd.Status {
	switch o {
	case Succeeded:
		return dispatcherd.Done
	case FailedFinal, Quarantined:
		return dispatcherd.Failed
	case Cancelled:
		return dispatcherd.Cancelled
	}
	return dispatcherd.Pending
}

// Final reports whether the outcome removes the job from the table of live jobs.
func (o Outcome) Final() bool { return o.Status().Final() }

// Finish ends one attempt of one row.
type Finish struct {
	ID      dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Outcome Outcome
	Result  []byte        // JSON or nil; Succeeded only
	Error   string        // at most MaxErrorLength bytes: the worker's or the dispatcher's reason
	Delay   time.Duration // Retry and Isolated only, ≥ 0
	Backoff string        // Retry only: why the delay is as it is, for the placement
	Fence   int64         // of a job with keys, for the controller; the store does not use it
	Size    int           // bytes of the payload, if known, and of the result; the store does not use it
	Log     string        // the end of the log of the attempt, at most 4 KiB; "" = none

	Placement *Placement // nil if the attempt did not start, or succeeded after a short wait
}

// Seconds returns a duration in seconds, rounded to the nearest number with three decimals, which is how it is written.
// Duration.Seconds adds two numbers, so its result may be written with 16 digits.
func Seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}

// Placement says where an attempt ran, why it waited, and after a failure why the next one waits. The table contains it as JSON.
type Placement struct {
	Worker    string             `json:"worker"`
	Slot      dispatcherd.SlotID `json:"slot"`
	Waited    float64            `json:"waited_seconds"` // from the time at which the attempt was due to its start
	Ran       float64            `json:"ran_seconds"`
	Score     ScoreTerms         `json:"score"`
	Permits   float64            `json:"permits_seconds,omitempty"` // the first part of the wait of a job with keys, before it had its permits
	Backoff   string             `json:"backoff,omitempty"`         // whose backoff the next attempt waits for; "" = there is none
	WaitedFor string             `json:"waited_for,omitempty"`      // the reason that held longest while the job waited; "" = none is known
}

// ScoreTerms are the terms of a row's score in points when its slot was chosen.
type ScoreTerms struct {
	Base    float64 `json:"base"`
	Age     float64 `json:"age"`
	Rarity  float64 `json:"rarity"`
	Brevity float64 `json:"brevity,omitempty"` // for the expected duration; 0 without --duration-window
}

// FinishRequest ends many attempts in one statement. The items are independent: a
// stale item does not affect the others. Again means that the same items were sent
// before with an unknown outcome. An item then also counts as executed if the row
// shows that the earlier copy has ended the same attempt.
type FinishRequest struct {
	Items []Finish // ascending by ID, no duplicates
	Again bool
}

// Deferred is an end that Postgres did not record, because another transaction has
// locked the row, because Postgres refused the end in a statement of its own, or because
// there was no time for such a statement.
type Deferred struct {
	ID     dispatcherd.JobID
	Reason string // message and SQLSTATE of Postgres, or what holds the lock
	Holder int32  // process id of the session that has locked the row; 0 = unknown, or no lock
}

// FinishResult answers a FinishRequest. With Verdict OK the items in Stale changed
// nothing: the row no longer runs under that attempt and dispatcher. The items in
// Deferred changed nothing either and must be sent again, later and apart from
// others. With Refused and Unknown the whole request must be sent again.
type FinishResult struct {
	Verdict  Verdict
	Stale    []dispatcherd.JobID // ascending
	Deferred []Deferred          // ascending by ID
}

// Recorded reports whether the end of an item was recorded.
func (r *FinishResult) Recorded(id dispatcherd.JobID) bool {
	_, stale := slices.BinarySearch(r.Stale, id)
	return r.Verdict == OK && !stale && !slices.ContainsFunc(r.Deferred, func(d Deferred) bool { return d.ID == id })
}
