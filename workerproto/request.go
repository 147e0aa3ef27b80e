package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Request asks the dispatcher to run a job now. It is answered by exactly one Answer.
//
//	{"op":"request","id":7,"type":"pdf","payload":{"page":1},"timeout_ms":30000}
type Request struct {
	sentByCaller

	ID           int64  // chosen by the caller: 1 or more, and unique among the open requests of this session
	Type         string // type that the slot must support
	Payload      []byte // JSON; nil if there is none
	Priority     dispatcherd.Priority
	Timeout      time.Duration // how long the caller waits; 0 = the dispatcher's default
	CapacityWait time.Duration // how long the request waits while no slot supports the type; 0 = not at all
	Durable      bool          // write a row to Postgres before the request is queued
	LocalOnly    bool          // "durable":false: never write a row, also if only slots of other dispatchers support the type
	Key          string        // idempotency key; "" = none
	CoalesceKey  string        // equal requests with the same key share one execution; "" = none
	Keys         string        // with Durable: keys whose permits the job needs, as in the table; "" = none
	Expected     time.Duration // how long an attempt probably takes; 0 = unknown
	Traceparent  string        // W3C trace context, for the worker; "" = none
	Events       bool          // send Queued, Started, RequestProgress, RequestPartial and Gap
}

// Size returns an upper bound of the frame's length in bytes.
func (m *Request) Size() int {
	return len(m.Payload) + 6*(len(m.Type)+len(m.Key)+len(m.CoalesceKey)+len(m.Keys)+len(m.Traceparent)) + 288
}

func (m *Request) members(c *codec) {
	c.op("request")
	integer(c, "id", &m.ID, required)
	symbol(c, "type", &m.Type, unbounded, required)
	integer(c, "priority", &m.Priority, optional)
	c.millis("timeout_ms", &m.Timeout, optional)
	c.millis("wait_for_worker_ms", &m.CapacityWait, optional)
	given := optional
	if m.LocalOnly {
		given = always
	}
	if c.boolean("durable", &m.Durable, false, given) {
		m.LocalOnly = !m.Durable
	}
	c.text("idempotency_key", &m.Key, unbounded, optional)
	c.text("coalesce_key", &m.CoalesceKey, unbounded, optional)
	c.text("keys", &m.Keys, unbounded, optional)
	c.millis("expected_ms", &m.Expected, optional)
	c.text("traceparent", &m.Traceparent, unbounded, optional)
	c.boolean("events", &m.Events, false, optional)
	c.raw("payload", &m.Payload, optional)
	if c.task == checking && !m.Priority.Valid() {
		c.bad("field \"priority\" " + outOfRange)
	}
}
