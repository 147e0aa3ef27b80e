package ondemand

import (
	"cmp"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// Options are the parameters of a request.
type Options struct {
	Type         string
	Payload      []byte // JSON without line breaks that can be sent to a worker, or nil
	Priority     dispatcherd.Priority
	Timeout      time.Duration // how long the caller waits; 0 = the default
	CapacityWait time.Duration // how long the caller waits while no slot supports the type
	Durable      bool          // write a row to Postgres first
	Keys         string        // for Durable: keys whose permits the job needs; "" = none
	Expected     time.Duration // how long an attempt probably takes; 0 = unknown
	CoalesceKey  string        // callers with the same key and request share one execution
	Key          string        // idempotency key: the same key and request get the same answer
	User         string        // whose share of the bounds it takes; each user has its own idempotency keys
	Events       bool          // the caller follows the events
	Later        bool          // the caller fetches the answer later
}

// MaxKey bounds coalesce keys and idempotency keys, in bytes.
const MaxKey = 256

// Shared reports whether the request needs a [Shared] request.
func (o *Options) Shared() bool {
	return o.Durable || o.CoalesceKey != "" || o.Key != "" || o.Later
}

// keyed reports whether other callers may share the request.
func (o *Options) keyed() bool { return o.Key != "" || o.CoalesceKey != "" }

// Check returns the first option that is not allowed, as a problem.
func (s *Service) Check(o *Options) error {
	if err := dispatcherd.CheckType(o.Type); err != nil {
		return rest.InvalidRequest.Of(err.Error())
	}
	var reason string
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

// request returns the request that is submitted for checked options.
func (s *Service) request(o *Options) Request {
	return Request{
		Type: o.Type, User: o.User, Priority: o.Priority, Payload: o.Payload, Deadline: cmp.Or(o.Timeout, s.limits.DefaultTimeout),
		Durable: o.Durable, Keys: o.Keys, WaitCapacity: o.CapacityWait > 0, CapacityWait: o.CapacityWait, Expected: o.Expected,
	}
}
