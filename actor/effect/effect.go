// Package effect declares what the core asks the shell to do: one type per effect.
package effect

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// Effect is something that the Core asks the shell to do. The set of types is
// closed, and pointers to these types implement the interface. The performer
// performs effects in order and must not wait.
//
// An effect is valid until the next Step, because the Core reuses the memory of Send.
// An effect may point to a request. The request belongs to the
// performer until the event that answers it. Then the request belongs to the Core
// again.
type Effect interface{ isEffect() }

// effect is the part of a struct that makes a pointer to it an Effect.
type effect struct{}

func (*effect) isEffect() {}

// Send sends a job to a slot of a session.
type Send struct {
	effect
	contract.Delivery

	Session dispatcherd.SessionID
	Slot    dispatcherd.SlotID
	Number  int32 // the worker's own number of the slot
	Mode    dispatcherd.Mode
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Type    string
	Timeout time.Duration // timeout of the attempt, or deadline of the request; 0 = none
	Age     time.Duration // time since the job became due
	// Terms is the score at the instant of the placement, by term.
	Terms scoring.Terms
	// PlacedAt is the instant of the placement. A queued job is sent later, when
	// its claim is answered.
	PlacedAt timing.Instant
}

// Cancel tells a worker to stop a job.
type Cancel struct {
	effect

	Session dispatcherd.SessionID
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Reason  string
}

// Stale informs a worker that its report changed nothing. The attempt in the report
// is no longer the current one.
type Stale struct {
	effect

	Session dispatcherd.SessionID
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
}

// NotHeld informs a worker that its report is about a job that another session
// runs.
type NotHeld struct {
	effect

	Session dispatcherd.SessionID
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
}

// Spawned answers the request of a worker to insert children.
type Spawned struct {
	effect

	Session dispatcherd.SessionID
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Number  int64 // of the request
	Result  contract.SpawnResult
}

// RejectSlots informs a worker that its slots exceed a limit and that the session
// must end. The Core has already forgotten the session. Unregistered still follows.
type RejectSlots struct {
	effect

	Session dispatcherd.SessionID
	Reason  string
}

// GoAway tells a worker to leave this dispatcher.
type GoAway struct {
	effect

	Session dispatcherd.SessionID
	Reason  string
}

// HangUp ends a session whose worker ignored a cancel. The Core has forgotten the
// session already and accepts no more slots of the session. Unregistered still
// follows.
type HangUp struct {
	effect

	Session dispatcherd.SessionID
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Reason  string
}

// Resume informs a session that the execution in its resume offer continues. Resume
// comes before the session's Welcome.
type Resume struct {
	effect

	Session dispatcherd.SessionID
	Slot    dispatcherd.SlotID
	Number  int32
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
}

// Welcome says that all resume offers of a session are decided.
type Welcome struct {
	effect

	Session dispatcherd.SessionID
}

// TurnAway informs a session that its resume offers are not decided here, because
// the dispatcher is about to stop. The executions stay with the worker and their
// rows are unchanged. The session must end. The Core has already forgotten it.
type TurnAway struct {
	effect

	Session dispatcherd.SessionID
	Reason  string
}

// Started informs the caller of an on-demand request that the request runs.
type Started struct {
	effect

	Job    dispatcherd.JobID
	Slot   dispatcherd.SlotID
	Worker string
}

// Answer ends an on-demand request.
type Answer struct {
	effect

	Job    dispatcherd.JobID
	Kind   AnswerKind
	Result []byte // for AnswerDone
	Reason string // for other kinds
	// PauseEnds is when a pause of the type ends, for AnswerPaused; 0 = it has no end.
	PauseEnds time.Duration
}

// Report passes on a report about a running attempt.
type Report struct {
	effect
	contract.Report

	Mode dispatcherd.Mode
}

// Fetch asks Postgres for candidates. The answer is actor.Fetched.
type Fetch struct {
	effect

	Request *contract.FetchRequest
}

// Claim asks Postgres for rows. The answer is actor.Claimed.
type Claim struct {
	effect

	Request *contract.ClaimRequest
}

// Resolve asks Postgres which rows a claim with an unknown outcome has won. The
// answer is actor.Claimed.
type Resolve struct {
	effect

	Request *contract.ClaimRequest
}

// Load asks for the payloads of rows that a claim took. The answer is actor.Loaded,
// once or for a part of the rows at a time. The performer repeats what Postgres does
// not answer.
type Load struct {
	effect

	Request *contract.LoadRequest
}

// Finish ends attempts in Postgres. The answer is actor.Finished.
type Finish struct {
	effect

	Request *contract.FinishRequest
}

// Adopt asks Postgres for rows that workers offered to resume. The answer is
// actor.Adopted.
type Adopt struct {
	effect

	Request *contract.AdoptRequest
}

// Spawn asks Postgres to insert children of a running job. The answer is actor.Spawned.
type Spawn struct {
	effect

	Request *contract.SpawnRequest
}

// SetGate sets whether producers send notifications. The answer is actor.GateSet.
type SetGate struct {
	effect

	Subscribed bool
}

// Violation reports an impossible transition of a job. The job keeps its state. The
// shell reports the error and stops the dispatcher in the usual stages. The Core
// sends a Violation only with Config.DrainOnViolation.
type Violation struct {
	effect

	Err error
}

// AnswerKind is the way an on-demand request ended.
type AnswerKind uint8

// The answers.
const (
	AnswerDone        AnswerKind = iota + 1 // the worker's result
	AnswerFailed                            // the worker's error, or too many crashes
	AnswerLate                              // the deadline passed
	AnswerUnsupported                       // no slot supports the type
	AnswerBusy                              // too many requests wait already
	AnswerStopping                          // the dispatcher is about to stop
	AnswerPaused                            // an operator has paused the type
)

// String returns the answer's name.
func (a AnswerKind) String() string {
	return [...]string{"", "done", "failed", "late", "unsupported", "busy", "stopping", "paused"}[a]
}
