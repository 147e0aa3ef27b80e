package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Backend is the dispatcher behind the API. Its methods may be called from any
// goroutine at any time.
type Backend interface {
	Requests
	Jobs
	State
}

// Requests is what the API needs for callers who wait.
type Requests interface {
	// Submit hands a request to the dispatcher. Without an error c.Answered is
	// called exactly once, unless Abandon comes first; it may be called before
	// Submit returns. An error says that nothing was submitted: an *InvalidError,
	// ErrUnavailable or ErrStopping; or, of a request that is Once, that nobody
	// waits for its row, which may be there: an *UndecidedError.
	Submit(ctx context.Context, r Request, c Caller) (dispatcherd.JobID, error)
	// Abandon gives a request up: it leaves the queue, or its worker is told to
	// stop. When it returns c is not called any more.
	Abandon(id dispatcherd.JobID, c Caller)
	// Impatient ends a request that waits because no slot supports its type:
	// it is answered Unsupported. Any other goes on.
	Impatient(id dispatcherd.JobID)
	// Bereft reports whether a request waits and no slot supports its type.
	// comeback is how long whoever named no patience bears that.
	Bereft(id dispatcherd.JobID) (comeback time.Duration, bereft bool)
	// Offered reports whether a slot supports a type, here or, as far as is known,
	// at another dispatcher.
	Offered(kind string) bool
	// Rank says how many waiting jobs known here go before this one; ok is
	// false if it does not wait.
	Rank(id dispatcherd.JobID) (r Rank, ok bool)
}

// Jobs is the table.
type Jobs interface {
	// Insert adds one job, described by a JSON object as in docs/api.md.
	Insert(ctx context.Context, object []byte) (dispatcherd.JobID, error)
	// InsertLines adds a stream of such objects, one a line, in one
	// transaction, and tells every bad line to bad. With strict, one bad line
	// means that nothing is inserted and the count is 0. ErrCrowded: too many
	// others do the same.
	InsertLines(ctx context.Context, lines io.Reader, strict bool, bad func(line int, reason error)) (int64, error)
	// Job reads one job. ErrNotFound if there is none.
	Job(ctx context.Context, id dispatcherd.JobID) (contract.Job, error)
	// Cancel cancels a job, or asks for the end of a running one; the status
	// tells which. ErrNotFound, or *ConflictError if the job had ended.
	Cancel(ctx context.Context, id dispatcherd.JobID) (dispatcherd.Status, error)
	// Watch tells c when a row may have changed: Started and Reported if it
	// runs here, Answered with kind Changed for anything else. stop ends it.
	Watch(id dispatcherd.JobID, c Caller) (stop func())
	// Why explains where a job stands. ErrNotFound if there is none.
	Why(ctx context.Context, id dispatcherd.JobID) (Why, error)
}

// State is what an operator wants to see.
type State interface {
	// Slots lists the slots of this dispatcher's workers.
	Slots() []Slot
	// Types lists the types it knows.
	Types() []Type
	// Checks tells the state of what the dispatcher depends on. alive is
	// whether the loop turns, the rest whether it can do its work.
	Checks() (alive bool, checks []Check)
}

// Caller waits for a request. The dispatcher's own goroutine calls it, so its
// methods return at once.
type Caller interface {
	// Started tells who runs it; it may start again after a worker died.
	Started(slot dispatcherd.SlotID, worker string)
	// Reported hands on progress or a piece of output.
	Reported(r Report)
	// Answered is the last call.
	Answered(a Answer)
}

// Request is one on-demand request.
type Request struct {
	Type     string
	Priority dispatcherd.Priority
	Payload  []byte            // JSON on one line that a worker can be sent, or nil
	Deadline time.Duration     // after which it is answered Late; 0 = none
	Wait     bool              // stay although no slot supports the type
	Patience time.Duration     // how long, also when the last slot goes away; 0 = until Impatient
	Durable  bool              // a row in Postgres instead of an entry in memory
	Once     bool              // Durable: should its row's fate not be known, it is to be known by which id
	Row      dispatcherd.JobID // Once: the row that an earlier Submit may have written; 0 = there was none
}

// Report is one word of a worker about a running request.
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
	Failed                            // the worker failed, or workers died under it
	Late                              // the deadline passed
	Unsupported                       // no slot supports the type
	Busy                              // too many requests wait already
	Stopping                          // the dispatcher is about to stop
	Cancelled                         // somebody cancelled the row
	Changed                           // of Watch: look at the row
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
	Worker  string // who ran it last, "" if unknown or nobody
}

// Rank is a job's place in the order of the waiting jobs known to a dispatcher.
type Rank struct {
	OfType  int `doc:"Place among the waiting jobs of its type; 1 goes next." json:"rank"`
	Waiting int `doc:"Waiting jobs of its type that this dispatcher knows."   json:"waiting"`
}

// Check is one line of /readyz?verbose.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Info string `json:"info,omitempty"`
}

// Slot is one slot as it is shown.
type Slot struct {
	Slot     int64    `json:"slot"`
	Worker   string   `json:"worker"`
	Session  int64    `json:"session"`
	Number   int32    `doc:"The worker's own number."                      json:"number"`
	Types    []string `json:"types"                                        nullable:"false"`
	State    string   `enum:"free,reserved,busy"                           json:"state"`
	Draining bool     `json:"draining,omitempty"`
	Job      int64    `doc:"Negative: an on-demand request without a row." json:"job,omitempty"`
	JobType  string   `json:"job_type,omitempty"`
	Attempt  int32    `json:"attempt,omitempty"`
}

// Type is one type as it is shown.
type Type struct {
	Type     string  `json:"type"`
	Capacity int     `doc:"Slots that support it, free or busy." json:"capacity"`
	Free     int     `json:"free"`
	Cached   int     `doc:"Candidates read ahead."               json:"cached"`
	Requests int     `doc:"On-demand requests that wait."        json:"requests"`
	Oldest   float64 `doc:"Age of the oldest waiting job known." json:"oldest_seconds"`
}

// Errors that a Backend returns.
var (
	ErrNotFound    = errors.New("no such job")
	ErrUnavailable = errors.New("the database does not answer")
	ErrStopping    = errors.New("the dispatcher is about to stop")
	ErrCrowded     = errors.New("as many streams of jobs as may be are being inserted already")
)

// InvalidError says that what was sent cannot be a job.
type InvalidError struct{ Reason error }

// Error is the reason.
func (e *InvalidError) Error() string { return e.Reason.Error() }

// Unwrap returns the reason.
func (e *InvalidError) Unwrap() error { return e.Reason }

// UndecidedError says that nobody knows whether a row was written. Who submits the
// same again with Row = Job gets the row that is there, or writes it.
type UndecidedError struct {
	Job dispatcherd.JobID
	Err error
}

// Error is that of Err.
func (e *UndecidedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UndecidedError) Unwrap() error { return e.Err }

// LongLineError says that a line of an upload is longer than one job may be.
type LongLineError struct {
	Line  int // from 1
	Limit int // bytes
}

// Error names the line and the limit.
func (e *LongLineError) Error() string {
	return fmt.Sprintf("line %d has more than %d bytes; nothing was inserted", e.Line, e.Limit)
}

// ConflictError says that a job's status forbids what was asked for.
type ConflictError struct {
	Status dispatcherd.Status
	Want   string // what is possible
}

// Error names the status and what is possible.
func (e *ConflictError) Error() string { return fmt.Sprintf("the job is %s: %s", e.Status, e.Want) }
