package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Event is something that happened. The set of types is closed. The file that decides what follows from an event
// contains its method apply. A pointer to an event is an event as well, so that a caller can reuse the memory.
type Event interface{ apply(*Core) }

// Registered adds slots of a session, at its start or later. The sender has
// validated the slots: types are sorted, unique and valid, and slot ids are new. If
// the slots exceed the limits, an effect rejects them.
type Registered struct {
	Session dispatcherd.SessionID
	Worker  string
	Process string // of the worker; the same in all its sessions
	User    string // whose share of the bounds the slots take; read only in the first event of the session
	Slots   []dispatcherd.Slot
	// Fingerprint is the fingerprint of the session's nonce. It is the same in each
	// Registered event of the session.
	Fingerprint contract.Fingerprint
	// NotResumable says that the worker does not resume its jobs after the session.
	// The Core reads NotResumable only together with a Fingerprint.
	NotResumable bool
	// Remote says that the worker may live when its session has ended: it is connected over a network.
	// Moves says that the worker knows other dispatchers. Both are read together with a Fingerprint.
	Remote, Moves bool
	// Offers are the executions that the worker continues from an earlier session.
	// Only the first events of a session have Offers. The Core answers an accepted
	// offer with Resume and sends nothing for a declined one. Welcome follows after
	// the last decision. If the session must end, one TurnAway or RejectSlots
	// replaces all these answers. The Core registers the slot of an offer when it
	// accepts the offer.
	Offers []ResumeOffer
	// MoreOffers says that the next event of the session has further Offers. Welcome
	// waits for them.
	MoreOffers bool
}

// ResumeOffer is an execution that a worker continues from an earlier session, with
// the slot that it occupies.
type ResumeOffer struct {
	Job     dispatcherd.JobID
	Mode    dispatcherd.Mode
	Attempt dispatcherd.Attempt
	From    contract.Fingerprint // fingerprint of the session in which the attempt began
	To      contract.Fingerprint // From with the generation of this offer; 0 = From
	Slot    dispatcherd.Slot
}

// Outdated reports whether an offer is known to be older than another offer of the
// same execution, or equal to it. A dispatcher that was suspended for a while may
// receive the offers of two connections in reverse order. The older connection has
// then ended, and the execution stays with the newer one.
func (o *ResumeOffer) Outdated(other contract.Fingerprint) bool {
	counted := func(f contract.Fingerprint) bool { return f != 0 && f != o.From }
	return counted(o.To) && counted(other) && !o.To.Supersedes(other, o.From)
}

// Unregistered reports the end of a session, because its worker died or
// disconnected. All its slots are removed, whatever their state (article 1,
// "unregister"). A remote worker may continue its jobs, unless it said goodbye.
type Unregistered struct {
	Session dispatcherd.SessionID
}

// Withdrew removes slots of a worker. Free slots are removed at once, the others
// when their jobs end. If Numbers is empty, all slots of the session are removed,
// including later ones.
type Withdrew struct {
	Session dispatcherd.SessionID
	Numbers []int32 // the worker's own slot numbers
	Goodbye bool    // without Numbers: the worker continues no job when the session has ended
}

// Released reports that jobs of a worker have ended. It frees their slots.
type Released struct {
	Session dispatcherd.SessionID
	Results []Result
}

// Result is the end of one attempt as reported by its worker.
type Result struct {
	Job        dispatcherd.JobID
	Attempt    dispatcherd.Attempt
	OK         bool
	Returned   bool          // the worker returns the job unfinished; the attempt does not count
	Value      []byte        // JSON or nil; only with OK
	Error      string        // only without OK
	Permanent  bool          // only without OK: the job must not be retried
	RetryAfter time.Duration // only without OK: delay requested by the worker; 0 = the usual backoff
}

// Reported contains reports of a worker about running jobs. It frees no slot. The
// reports of a session reach the loop before its later results.
type Reported struct {
	Session dispatcherd.SessionID
	Reports []contract.Report
}

// SpawnRequested asks to insert children of a job that the session runs.
type SpawnRequested struct {
	Request *contract.SpawnRequest
}

// Requested adds an on-demand request (article 1, "on-demand").
type Requested struct {
	Job      dispatcherd.JobID // negative and unique; a later request has a smaller id, except for requests at about the same time
	Type     string
	User     string // whose share of the bounds the request takes
	Priority dispatcherd.Priority
	Class    dispatcherd.DurationClass // of the duration that the caller expects
	Payload  []byte
	// Traceparent is the W3C trace context of the caller; "" = none.
	Traceparent string
	// Session is the only session that may run the request, once; 0 = any session, and
	// after the loss of a worker another one.
	Session dispatcherd.SessionID
	// Deadline is the time after which the request ends with AnswerLate. The time
	// starts with this event; 0 = none.
	Deadline time.Duration
	// Wait allows the request to wait although no slot supports its type.
	Wait bool
	// CapacityWait is how long the request waits while no slot supports its type.
	// With Wait, the time starts with this event, or when the last slot of the type
	// is removed; 0 = as long as the caller waits. Without Wait, the time starts
	// when the last slot of the type is removed, and is at least
	// Config.ReconnectGrace, so that a worker can reconnect.
	CapacityWait time.Duration
}

// Abandoned reports that the caller of an on-demand request has disconnected.
type Abandoned struct {
	Job dispatcherd.JobID
}

// Notified reports that rows may have become pending. This event is a hint and may
// be lost.
type Notified struct{}

// Announced is like Notified, for a transaction that made exactly one row pending.
// Announced names the row. It is a hint as well.
type Announced struct {
	Row contract.RowNotification
}

// Admitted names rows with keys that have got their permits. Any dispatcher may claim them. It is a hint as well.
type Admitted struct {
	Rows []contract.RowNotification
}

// Listening says whether notifications are received.
type Listening struct {
	On bool
}

// CancelRequested asks to stop jobs that run here. Ids of other rows are ignored.
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

// Loaded answers a part of a Load effect. Its verdict is OK and its Rest is empty.
type Loaded struct {
	Result contract.LoadResult
}

// Finished answers a Finish effect.
type Finished struct {
	Request *contract.FinishRequest
	Result  contract.FinishResult
}

// Spawned answers a Spawn effect.
type Spawned struct {
	Request *contract.SpawnRequest
	Result  contract.SpawnResult
}

// GateSet answers a SetGate effect.
type GateSet struct {
	Subscribed bool
	Verdict    contract.Verdict
}

// Disowned reports that the lease of this dispatcher may have ended. Other
// dispatchers may then have adopted its rows. The Core tells the workers of
// queued jobs to stop, ends these attempts as released, and claims no row until
// Owned.
type Disowned struct{}

// Owned reports that the dispatcher has a valid lease again, the old one or a new
// one.
type Owned struct{}

// ClusterCapacity contains the slots of other dispatchers by type, and the shares
// of the rows. The score term rarity counts these slots, too. A type that is not in
// Capacity has no slot at other dispatchers. The Core keeps the maps, so the sender
// must not change them.
type ClusterCapacity struct {
	Capacity map[string]int
	Shares   map[string]contract.Share // shares of this dispatcher; without an entry, the share of a type is everything
}

// DurationsRead contains what dispatchers have learned of durations. What the predecessor of this dispatcher learned counts until
// this dispatcher learns something of the same type and class.
type DurationsRead struct {
	Own    []contract.Durations // under the name of this dispatcher
	Others []contract.Durations // the sums of the other dispatchers
}

// Adopted answers an Adopt effect.
type Adopted struct {
	Request *contract.AdoptRequest
	Result  contract.AdoptResult
}

// Controlled contains what operators have set for types and workers. It replaces what the event before contained. It must come before the
// first event of a worker, so that no job starts that is paused.
type Controlled contract.Controls

// Drained reports that the dispatcher is about to stop. The Core starts no more
// jobs and drops claims that are not sent. Running jobs continue.
type Drained struct{}

// Interrupted reports the end of the grace period after Drained. The running jobs
// are released: their rows become pending and keep their order.
type Interrupted struct{}

// HandedOver reports the end of the grace period after Drained. The running jobs
// stay with their workers, which will offer them to the next dispatcher. The
// Core accepts results until the session of a job ends. Afterwards it does not
// change the row of the job. Requests have no row, so they are answered at once.
type HandedOver struct{}

// SentAway says whether an operator drains this dispatcher. Then it accepts no new sessions, and tells the
// workers that know other dispatchers to go there with their jobs. The others stay and get jobs as before.
type SentAway struct {
	On bool
}

// Tick reports that time has passed; see Core.NextWake.
type Tick struct{}

// Together contains several events at one instant. The Core decides after the
// last event. With Hold it makes no decision.
type Together struct {
	Events []Event
	Hold   bool
}
