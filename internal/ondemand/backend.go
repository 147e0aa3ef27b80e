package ondemand

import (
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Backend is the dispatcher. Its methods may be called from any goroutine.
type Backend interface {
	// Submit hands a request to the dispatcher. Without an error c.Answered is
	// called exactly once, unless Abandon comes first; it may be called before
	// Submit returns. After an error nothing was submitted: an *InvalidError,
	// ErrUnavailable or ErrStopping. The exception is an *UndecidedError, which is
	// returned for a request with Once: its row may have been written.
	Submit(ctx context.Context, r Request, c Caller) (dispatcherd.JobID, error)
	// Abandon cancels a request: it is removed from the queue, or its worker is told to
	// stop. c is not called after Abandon returns.
	Abandon(id dispatcherd.JobID, c Caller)
	// NoCapacity reports whether a request waits and no slot supports its type.
	// wait is the capacity wait of a request that names none.
	NoCapacity(id dispatcherd.JobID) (wait time.Duration, none bool)
	// Offered reports whether a slot supports a type, here or, as far as is known,
	// at another dispatcher.
	Offered(typ string) bool
	// Rank returns the place of a waiting job; ok is false if it does not wait.
	Rank(id dispatcherd.JobID) (r Rank, ok bool)
}

// Caller receives what happens to a request. The dispatcher's loop calls it, so its
// methods must not block.
type Caller interface {
	// Started names the slot and the worker. A request may start again after a crash.
	Started(slot dispatcherd.SlotID, worker string)
	// Reported delivers progress or a piece of output.
	Reported(r Report)
	// Answered is the last call.
	Answered(a Answer)
}

// AnswerOnly is the part of a Caller that ignores everything but the answer.
type AnswerOnly struct{}

// Started implements Caller.
func (AnswerOnly) Started(dispatcherd.SlotID, string) {}

// Reported implements Caller.
func (AnswerOnly) Reported(Report) {}

// Request is one on-demand request as the dispatcher takes it.
type Request struct {
	Type         string
	Priority     dispatcherd.Priority
	Payload      []byte            // JSON without line breaks that a worker can be sent, or nil
	Deadline     time.Duration     // after which it is answered Late; 0 = none
	WaitCapacity bool              // wait although no slot supports the type
	CapacityWait time.Duration     // how long, also when the last slot is removed; 0 = the dispatcher's default
	Durable      bool              // a row in Postgres instead of an entry in memory
	Once         bool              // Durable: if the fate of its row is unknown, Submit returns an *UndecidedError with its id
	Row          dispatcherd.JobID // Once: the row that an earlier Submit may have written; 0 = none
}

// Report is one report of a worker about a running request.
type Report struct {
	Attempt dispatcherd.Attempt
	Partial bool // a piece of output; otherwise progress
	JSON    []byte
}

// AnswerKind is the way a request ended.
type AnswerKind uint8

// The answers.
const (
	Done        AnswerKind = iota + 1 // Payload is the result
	Failed                            // the worker failed, or workers crashed
	Late                              // the deadline passed
	Unsupported                       // no slot supports the type
	Busy                              // too many requests wait already
	Stopping                          // the dispatcher is about to stop
	Cancelled                         // the row was cancelled
	Changed                           // of a watch: read the row again
)

// String returns the answer's name as used in metrics.
func (k AnswerKind) String() string {
	return [...]string{"", "done", "failed", "late", "unsupported", "busy", "stopping", "cancelled", "changed"}[k]
}

// Answer is what a caller gets.
type Answer struct {
	Kind    AnswerKind
	Payload []byte // Done only: JSON, or nil
	Reason  string // what went wrong
	Worker  string // that ran it last, "" if none
}

// Result is the result of a Done answer: JSON, never nil.
func (a *Answer) Result() []byte {
	if a.Payload == nil {
		return []byte("null")
	}
	return a.Payload
}

// Rank is a job's place in the order of the waiting jobs known to a dispatcher.
type Rank struct {
	OfType  int `json:"rank"`    // place among the waiting jobs of its type; 1 goes next
	Waiting int `json:"waiting"` // waiting jobs of its type that this dispatcher knows
}

// Errors that a Backend returns.
var (
	ErrUnavailable = errors.New("the database does not answer")
	ErrStopping    = errors.New("the dispatcher is about to stop")
)

// InvalidError says that what was sent cannot be a job.
type InvalidError struct{ Reason error }

// Error is the reason.
func (e *InvalidError) Error() string { return e.Reason.Error() }

// Unwrap returns the reason.
func (e *InvalidError) Unwrap() error { return e.Reason }

// UndecidedError says that it is unknown whether a row was written. Submitting the
// same request with Row = Job returns the row if it exists and writes it otherwise.
type UndecidedError struct {
	Job dispatcherd.JobID
	Err error
}

// Error is that of Err.
func (e *UndecidedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UndecidedError) Unwrap() error { return e.Err }
