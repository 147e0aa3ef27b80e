package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Request asks the dispatcher to run a job now. It is answered by exactly one Answer.
//
//	{"op":"request","id":7,"type":"pdf","payload":{"page":1},"timeout_ms":30000}
type Request struct {
	ID           int64  // chosen by the caller: 1 or more, not that of an open request of this session
	Type         string // what the request needs a slot to support
	Payload      []byte // JSON; nil if there is none
	Priority     dispatcherd.Priority
	Timeout      time.Duration // how long the caller waits; 0 = the dispatcher's default
	CapacityWait time.Duration // how long it waits while no slot supports the type; 0 = not at all
	Durable      bool          // write a row to Postgres first
	Key          string        // idempotency key; "" = none
	CoalesceKey  string        // "" = none
	Events       bool          // send Queued, Started, RequestProgress, RequestPartial and Gap
}

func (*Request) fromCaller() {}

func (m *Request) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"op":"request","id":`...), m.ID)
	dst = appendString(append(dst, `,"type":`...), m.Type)
	if m.Priority != 0 {
		dst = appendInt(append(dst, `,"priority":`...), int64(m.Priority))
	}
	dst = appendMillis(dst, `,"timeout_ms":`, m.Timeout)
	dst = appendMillis(dst, `,"wait_for_worker_ms":`, m.CapacityWait)
	if m.Durable {
		dst = append(dst, `,"durable":true`...)
	}
	if m.Key != "" {
		dst = appendString(append(dst, `,"idempotency_key":`...), m.Key)
	}
	if m.CoalesceKey != "" {
		dst = appendString(append(dst, `,"coalesce_key":`...), m.CoalesceKey)
	}
	if m.Events {
		dst = append(dst, `,"events":true`...)
	}
	return append(appendRaw(dst, `,"payload":`, m.Payload), '}')
}

func (m *Request) field(key []byte, s *scanner) {
	switch string(key) {
	case "id":
		m.ID = s.integer(1, maxInt64)
	case "type":
		m.Type = s.symbol(unbounded)
	case "payload":
		m.Payload = s.raw()
	case "priority":
		m.Priority = dispatcherd.Priority(s.integer(0, int64(dispatcherd.MaxPriority)))
	case "timeout_ms":
		m.Timeout = s.millis()
	case "wait_for_worker_ms":
		m.CapacityWait = s.millis()
	case "durable":
		m.Durable = s.boolean(false)
	case "idempotency_key":
		m.Key = s.text(unbounded)
	case "coalesce_key":
		m.CoalesceKey = s.text(unbounded)
	case "events":
		m.Events = s.boolean(false)
	default:
		s.unknown(key)
	}
}

// Size is an upper bound of the frame's length.
func (m *Request) Size() int {
	return len(m.Payload) + 6*(len(m.Type)+len(m.Key)+len(m.CoalesceKey)) + 256
}

func (m *Request) check(s *scanner) {
	s.require(m.ID != 0, "id")
	s.require(m.Type != "", "type")
}
