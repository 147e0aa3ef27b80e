package actor

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// EffectKind says what an Effect asks for and which of its fields are set.
type EffectKind uint8

// The effects. The performer must carry them out in order, and must not wait.
const (
	// Send hands a job to a slot of a session: Session, Number, Slot, Job,
	// Attempt, Mode, Type, Payload, Timeout, Age, Why.
	Send EffectKind = iota + 1
	// Cancel tells a worker to stop a job: Session, Job, Attempt, Reason.
	Cancel
	// Stale tells a worker that what it said about a job changed nothing,
	// because that attempt is no longer its: Session, Job, Attempt.
	Stale
	// NotHeld tells a worker that it spoke of a job another session runs:
	// Session, Job, Attempt.
	NotHeld
	// RefuseSlots tells a worker that a limit keeps its slots out and the
	// session must end: Session, Reason. For Core it is gone already, as after a
	// HangUp.
	RefuseSlots
	// GoAway tells a worker that the dispatcher is about to stop: Session.
	GoAway
	// Answer ends an on-demand request: Job, Answer, Payload (the result) or
	// Reason (what went wrong).
	Answer
	// Started tells the caller of an on-demand request that it runs: Job, Slot,
	// Worker in Reason.
	Started
	// Fetch asks Postgres for candidates; answered by Fetched.
	Fetch
	// Claim asks Postgres for rows; answered by Claimed.
	Claim
	// Resolve asks Postgres what an unknown claim took; answered by Claimed.
	Resolve
	// Finish ends attempts in Postgres; answered by Finished.
	Finish
	// Bell asks for notifications, or for silence: Armed; answered by BellSet.
	Bell
	// Progress tells how far a running job is: Job, Attempt, Payload.
	Progress
	// Partial hands on a piece of a running job's output: Job, Attempt, Payload.
	Partial
	// Adopt asks Postgres for rows that workers brought along; answered by
	// Adopted.
	Adopt
	// Resume tells a session that an execution it presented goes on: Session,
	// Number, Slot, Job, Attempt. It comes before the session's Welcome.
	Resume
	// Welcome tells that everything a session presented is decided: Session.
	Welcome
	// HangUp ends a session whose worker ignored a cancel: Session, Job, Attempt,
	// Reason. For Core the session is gone already, and brings no slots any more;
	// Unregistered is still expected.
	HangUp
	// TurnAway tells a session that what it presented is not decided here: the
	// dispatcher is about to stop. The worker keeps its executions, nothing of
	// them has changed, and the session must end, as after a HangUp: Session,
	// Reason.
	TurnAway
)

// String returns the effect's name in scenario files.
func (k EffectKind) String() string {
	names := [...]string{"", "send", "cancel", "stale", "not-held", "refuse-slots", "go-away",
		"answer", "started", "fetch", "claim", "resolve", "finish", "bell", "progress", "partial", "adopt", "resume", "welcome", "hang-up", "turn-away"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("effect(%d)", uint8(k))
}

// AnswerKind is the way an on-demand request ended.
type AnswerKind uint8

// The answers.
const (
	AnswerDone        AnswerKind = iota + 1 // Payload is the worker's result
	AnswerFailed                            // Reason is the worker's error, or that its workers died
	AnswerLate                              // the deadline passed
	AnswerUnsupported                       // no slot supports the type
	AnswerBusy                              // too many requests wait already
	AnswerStopping                          // the dispatcher is about to stop
)

// String returns the answer's name.
func (a AnswerKind) String() string {
	return [...]string{"", "done", "failed", "late", "unsupported", "busy", "stopping"}[a]
}

// Effect is something the shell is to do. It is a value: which fields count is
// said at each EffectKind. The requests it points to belong to the performer
// until their answering event comes back, and to Core again from then on.
type Effect struct {
	Kind    EffectKind
	Mode    dispatcherd.Mode
	Answer  AnswerKind
	Armed   bool
	Attempt dispatcherd.Attempt
	Number  int32 // the worker's own number of the slot
	Session dispatcherd.SessionID
	Slot    dispatcherd.SlotID
	Job     dispatcherd.JobID
	Type    string
	Reason  string
	Payload []byte
	Timeout time.Duration
	Age     time.Duration
	Why     Why
	Fetch   *contract.FetchRequest
	Claim   *contract.ClaimRequest
	Finish  *contract.FinishRequest
	Adopt   *contract.AdoptRequest
}

// Why is the reason of a placement: the score by term at the instant of the
// decision, and what the slot was chosen from.
type Why struct {
	Terms     scoring.Terms
	At        Instant // of the decision; a queued job is sent when its claim is answered
	SlotTypes int     // types the chosen slot supports: no free compatible slot had fewer
	Capacity  int     // slots that support the type, free or busy, here and elsewhere
}
