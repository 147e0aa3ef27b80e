// Package event declares what the shell tells the core: one type per event. actor.Core
// decides what follows from each.
package event

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Event is something that happened to the dispatcher. The set is closed.
type Event interface{ isEvent() }

// Registered brings new slots of a session, the first time or later. The
// sender has checked the worker's words: types are sorted, unique and valid,
// slot ids are new. Slots beyond the limits are refused with an effect.
type Registered struct {
	Session dispatcherd.SessionID
	Worker  string
	Slots   []dispatcherd.Slot
	// Fingerprint of the session's nonce, the same each time.
	Fingerprint contract.Fingerprint
	// NotResumable tells that the worker does not resume what it runs when its
	// session ends. It is valid only with a Fingerprint.
	NotResumable bool
	// Offers is what the worker still executes from an earlier session, the first
	// time only. Each is answered with Resume or not at all, and the last one also
	// with Welcome; or all of them with one TurnAway or RejectSlots. Their slots are
	// registered when they are resumed.
	Offers []ResumeOffer
}

// ResumeOffer is an execution that a worker continues from an earlier session,
// with the slot that it occupies.
type ResumeOffer struct {
	Job     dispatcherd.JobID
	Mode    dispatcherd.Mode
	Attempt dispatcherd.Attempt
	From    contract.Fingerprint // of the session in which the attempt began
	To      contract.Fingerprint // From with the generation of the offer; 0 = From
	Slot    dispatcherd.Slot
}

// Outdated reports whether an offer is known to be older than, or the same as,
// another one of the same execution. A dispatcher that was stopped for a while may
// receive the offers of two connections in the other order: the older connection
// is dead, and what was resumed on the newer one stays there.
func (o *ResumeOffer) Outdated(other contract.Fingerprint) bool {
	counted := func(f contract.Fingerprint) bool { return f != 0 && f != o.From }
	return counted(o.To) && counted(other) && !o.To.Supersedes(other, o.From)
}

// Unregistered tells that a session is gone, its worker dead or hung up. All
// its slots vanish, whatever they were doing (article 1, "unregister").
type Unregistered struct {
	Session dispatcherd.SessionID
}

// Withdrew tells that a worker takes slots off line: the free ones at once,
// the others when their job ends. No Slots means all of the session's, those
// to come included.
type Withdrew struct {
	Session dispatcherd.SessionID
	Numbers []int32 // the worker's own slot numbers
}

// Released carries what a worker says about jobs it ran. It frees their slots.
type Released struct {
	Session dispatcherd.SessionID
	Results []Result
}

// Result is the end of one attempt as its worker tells it.
type Result struct {
	Job        dispatcherd.JobID
	Attempt    dispatcherd.Attempt
	OK         bool
	Returned   bool          // the worker returns the job unfinished; the attempt does not count
	Value      []byte        // JSON or nil; OK only
	Error      string        // not OK only
	Permanent  bool          // not OK only: do not try again
	RetryAfter time.Duration // not OK only: the worker's own wish; 0 = the usual backoff
}

// Reported carries what a worker says about jobs that continue to run. It frees no
// slot. A session's reports reach the loop before its later results.
type Reported struct {
	Session dispatcherd.SessionID
	Reports []Report
}

// Report is progress or partial output of a running attempt.
type Report struct {
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Partial bool   // part of the output; otherwise progress
	JSON    []byte // handed on unchanged
}

// Requested brings an on-demand request (article 1, "on-demand").
type Requested struct {
	Job      dispatcherd.JobID // negative, none twice; who comes later has a smaller one, or one drawn at about the same time
	Type     string
	Priority dispatcherd.Priority
	Payload  []byte
	// Deadline, counted from now, ends the request with AnswerLate; 0 = none.
	Deadline time.Duration
	// Wait allows the request to stay although no slot supports its type.
	Wait bool
	// CapacityWait is how long it stays while no slot supports its type. With Wait it
	// counts from now or from the end of the last slot; 0 = as long as its caller
	// waits. Without Wait it is at least Config.ReconnectGrace from the end of the last
	// slot, so that a worker can reconnect.
	CapacityWait time.Duration
}

// Abandoned tells that the caller of an on-demand request hung up.
type Abandoned struct {
	Job dispatcherd.JobID
}

// Notified tells that rows may have become pending. It is a hint.
type Notified struct{}

// Announced is Notified that names the row, the only one its transaction made
// pending. It is as much of a hint.
type Announced struct {
	Row contract.RowNotification
}

// Listening tells whether notifications can be expected.
type Listening struct {
	On bool
}

// CancelRequested asks to stop rows that are running here; others are ignored.
type CancelRequested struct {
	Jobs []dispatcherd.JobID
}

// Fetched answers a Fetch effect.
type Fetched struct {
	Request *contract.FetchRequest
	Result  contract.FetchResult
}

// Claimed answers a Claim or a Resolve effect.
type Claimed struct {
	Request *contract.ClaimRequest
	Result  contract.ClaimResult
}

// Finished answers a Finish effect.
type Finished struct {
	Request *contract.FinishRequest
	Result  contract.FinishResult
}

// GateSet answers a SetGate effect.
type GateSet struct {
	Subscribed bool
	Verdict    contract.Verdict
}

// Disowned tells that this dispatcher cannot prove its lease any more: others
// may have adopted its rows. Its workers are told to stop, their attempts end as
// released, and no row is claimed until Owned.
type Disowned struct{}

// Owned tells that the dispatcher has a lease again, the old or a new one.
type Owned struct{}

// ClusterCapacity tells what the other dispatchers' slots can do, so that rarity
// means the cluster's, and how the rows are shared with them. Types that are
// not named have no slot at other dispatchers. Core keeps the maps.
type ClusterCapacity struct {
	Capacity map[string]int
	Shares   map[string]contract.Share // this dispatcher's; not named = everything
}

// Adopted answers an Adopt effect.
type Adopted struct {
	Request *contract.AdoptRequest
	Result  contract.AdoptResult
}

// Drained ends the taking of jobs for good: the dispatcher is about to stop.
// Running jobs continue; claims that are not sent are given up.
type Drained struct{}

// Interrupted releases the jobs that are still running: the grace period after
// Drained is over. Their rows become pending with their order kept.
type Interrupted struct{}

// HandedOver ends this dispatcher's part in the jobs that are still running:
// the grace period after Drained is over, and their workers will offer them to the
// next dispatcher. Results count until a job's session ends; from then on its
// row is left as it is. Requests have no row and are answered.
type HandedOver struct{}

// Tick tells that time has passed; see Core.NextWake.
type Tick struct{}

// Together is several events at one instant with one decision after the last.
// With Hold there is no decision at all yet.
type Together struct {
	Events []Event
	Hold   bool
}

func (Registered) isEvent()      {}
func (Unregistered) isEvent()    {}
func (Withdrew) isEvent()        {}
func (Released) isEvent()        {}
func (Reported) isEvent()        {}
func (Requested) isEvent()       {}
func (Abandoned) isEvent()       {}
func (Notified) isEvent()        {}
func (Announced) isEvent()       {}
func (Listening) isEvent()       {}
func (CancelRequested) isEvent() {}
func (Fetched) isEvent()         {}
func (Claimed) isEvent()         {}
func (Finished) isEvent()        {}
func (GateSet) isEvent()         {}
func (Disowned) isEvent()        {}
func (Owned) isEvent()           {}
func (ClusterCapacity) isEvent() {}
func (Adopted) isEvent()         {}
func (Drained) isEvent()         {}
func (Interrupted) isEvent()     {}
func (HandedOver) isEvent()      {}
func (Tick) isEvent()            {}
func (Together) isEvent()        {}
