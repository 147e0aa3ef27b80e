package ondemand

import (
	"cmp"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Options are what a caller asks for, as the frame of a request contains them. Over HTTP a request has no ID.
type Options = workerproto.Request

// Request is one on-demand request.
type Request struct {
	Options

	User  string // whose share of the bounds it takes; each user has its own idempotency keys
	Later bool   // the caller fetches the answer later

	// The service sets the following fields before it submits the request to the dispatcher.

	Elsewhere    bool                  // slots of other dispatchers support the type, and none of this one; see Route
	WaitCapacity bool                  // wait even if no slot supports the type
	Session      dispatcherd.SessionID // the only session that may run it, once; 0 = any
	Due          time.Time             // for Durable: no attempt starts later
	Mark         [32]byte              // for Durable with Key: hash of the request
	Keep         time.Duration         // for Durable with Key: how long the row keeps the key after Due
}

// MaxKey bounds coalesce keys and idempotency keys, in bytes.
const MaxKey = 256

// Shared reports whether the request needs a [Shared] request.
func (o *Request) Shared() bool {
	return o.Durable || o.Elsewhere || o.CoalesceKey != "" || o.Key != "" || o.Later
}

// keyed reports whether other callers may share the request.
func (o *Request) keyed() bool { return o.Key != "" || o.CoalesceKey != "" }

// Check returns the first option that is not allowed, as a problem.
func (s *Service) Check(o *Request) error {
	if err := dispatcherd.CheckType(o.Type); err != nil {
		return rest.InvalidRequest.Of(err.Error())
	}
	var reason string
	if o.Traceparent != "" {
		if err := dispatcherd.CheckTraceparent(o.Traceparent); err != nil {
			return rest.InvalidRequest.Of(err.Error())
		}
	}
	_, badKeys := permits.Parse(cmp.Or(o.Keys, "none"))
	switch {
	case !o.Priority.Valid():
		reason = fmt.Sprintf("priority %d is outside %d..%d", o.Priority, dispatcherd.MinPriority, dispatcherd.MaxPriority)
	case o.Timeout != 0 && (o.Timeout < time.Millisecond || o.Timeout > s.limits.MaxTimeout):
		reason = fmt.Sprintf("timeout must lie between 1ms and %v", s.limits.MaxTimeout)
	case o.Expected != 0 && (o.Expected < time.Millisecond || o.Expected > dispatcherd.MaxExpected):
		reason = fmt.Sprintf(
			"expected_ms must be a whole number from 1 to %d, or left out",
			dispatcherd.MaxExpected.Milliseconds(),
		)
	case o.CapacityWait < 0 || o.CapacityWait > s.limits.MaxTimeout:
		reason = fmt.Sprintf("wait_for_worker must lie between 0 and %v", s.limits.MaxTimeout)
	case len(o.CoalesceKey) > MaxKey:
		reason = fmt.Sprintf("coalesce_key has %d bytes; at most %d are allowed", len(o.CoalesceKey), MaxKey)
	case len(o.Key) > MaxKey:
		reason = fmt.Sprintf("Idempotency-Key is longer than %d bytes", MaxKey)
	case badKeys != nil:
		reason = badKeys.Error()
	case o.Keys != "" && !o.Durable:
		reason = "keys need durable: only a row of the table holds permits; set durable to true, or leave out keys"
	default:
		return nil
	}
	return rest.InvalidRequest.Of(reason)
}

// ViaQueue is the word in answers to requests that are rows only because another dispatcher has the slots.
const ViaQueue = "queue"

// Route decides, for a checked request that asks for no row, what happens if slots of other dispatchers support its type and none of this
// one does: the request becomes a row, so that they can run it. With LocalOnly it is refused instead, unless it waits for a slot.
func (s *Service) Route(o *Request) {
	if o.Durable || o.LocalOnly && o.CapacityWait > 0 || !s.backend.Elsewhere(o.Type) {
		return
	}
	o.Elsewhere, o.Durable = true, !o.LocalOnly
}

// via returns ViaQueue if the request is a row because of Route, otherwise "".
func (o *Request) via() string {
	if o.Elsewhere && o.Durable {
		return ViaQueue
	}
	return ""
}

// submittable completes a checked request.
func (s *Service) submittable(o *Request) Request {
	r := *o
	r.Timeout, r.WaitCapacity = cmp.Or(r.Timeout, s.limits.DefaultTimeout), r.CapacityWait > 0
	return r
}
