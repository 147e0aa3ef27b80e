package ondemand

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Backend is the dispatcher. Its methods may be called from any goroutine.
type Backend interface {
	// Submit sends a request to the dispatcher. If it returns no error, c.Answered
	// is called exactly once, unless Abandon is called first. The call may precede
	// the return of Submit. After a problem of the kind InvalidJob or ErrStopping nothing was
	// submitted. After any other error the row of a durable request may exist.
	Submit(ctx context.Context, r Request, c Caller) (dispatcherd.JobID, error)
	// Abandon cancels a request: the request leaves the queue, or its worker must stop. c
	// is not called after Abandon returns.
	Abandon(id dispatcherd.JobID, c Caller)
	// NoCapacity reports whether a request waits and no slot supports its type.
	// wait is the capacity wait for a request that does not name one.
	NoCapacity(id dispatcherd.JobID) (wait time.Duration, none bool)
	// Offered reports whether a slot supports a type, here or, as far as is known,
	// at another dispatcher.
	Offered(typ string) bool
	// Elsewhere reports whether slots of other dispatchers support a type, as far as is known, and none of this one.
	Elsewhere(typ string) bool
	// Offerings lists the workers of this dispatcher that offer a type, by session.
	Offerings(typ string) []Offering
	// Rank returns the place of a waiting job; ok is false if it does not wait.
	Rank(id dispatcherd.JobID) (r Rank, ok bool)
}

// Caller receives the events of a request. The dispatcher's loop calls its methods,
// so they must not block.
type Caller interface {
	// Started names the slot and the worker. A request may start again after a crash.
	Started(slot dispatcherd.SlotID, worker string)
	// Reported delivers progress, a part of the output or a line of the log.
	Reported(e Event)
	// Answered is the last call.
	Answered(a Answer)
}

// AnswerOnly implements the methods of a Caller except Answered. They do nothing.
type AnswerOnly struct{}

// Started implements Caller.
func (AnswerOnly) Started(dispatcherd.SlotID, string) {}

// Reported implements Caller.
func (AnswerOnly) Reported(Event) {}

// AnswerTo is a Caller that sends its answer to a channel of capacity 1.
type AnswerTo struct {
	AnswerOnly

	C chan Answer
}

// Answered implements Caller.
func (c AnswerTo) Answered(a Answer) { c.C <- a }

// AnswerKind is the way a request ended.
type AnswerKind uint8

// The kinds of answers. Those of the Core, effect.AnswerKind, are the first ones, in the same order.
const (
	Done        AnswerKind = iota + 1 // Payload is the result
	Failed                            // the worker failed, or workers crashed
	Late                              // the deadline passed
	Unsupported                       // no slot supports the type
	Busy                              // too many requests wait already
	Stopping                          // the dispatcher is about to stop
	Paused                            // an operator has paused the type
	Cancelled                         // the row was cancelled
	Changed                           // for an observed row: read the row again
)

// String returns the answer's name as used in metrics.
func (k AnswerKind) String() string {
	return [...]string{"", "done", "failed", "late", "unsupported", "busy", "stopping", "paused", "cancelled", "changed"}[k]
}

// Answer is what a caller gets.
type Answer struct {
	Kind    AnswerKind
	Payload []byte // for Done only: JSON, or nil
	Reason  string // the error
	Worker  string // worker that ran it last, or ""
	Via     string // ViaQueue or ""
	// Retry is when the pause of the type ends, for Paused only; 0 = that is not known.
	Retry time.Duration
}

// Result returns the result of a Done answer: JSON, never nil.
func (a *Answer) Result() []byte {
	if a.Payload == nil {
		return []byte("null")
	}
	return a.Payload
}

// Rank is a job's place in the order of the waiting jobs known to a dispatcher.
type Rank struct {
	OfType  int    `json:"rank"`          // place among the waiting jobs of its type; 1 is the next
	Waiting int    `json:"waiting"`       // waiting jobs of its type that this dispatcher knows
	Via     string `json:"via,omitempty"` // ViaQueue or ""
}

// Problems that a Backend returns, besides others.
var (
	ErrUnavailable = rest.Unavailable.Of("Postgres does not answer").Retryable()
	ErrStopping    = rest.Stopping.Of("the dispatcher is about to stop").Retryable()
)

// Undecided returns the problem of a request with a key of which an error leaves unknown whether its row was inserted. If the row exists,
// a repeated request with the same key uses it.
func Undecided(err error) *rest.Problem {
	p := Explain(err)
	p.Detail += "; whether the row was written is not known: a repeated request with the same Idempotency-Key finds out"
	return p
}
