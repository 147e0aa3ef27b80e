package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Answer ends a request: with the result, or with a code.
//
//	{"op":"answer","id":7,"worker":"w1","result":{"pages":3}}
//	{"op":"answer","id":8,"code":"queue-full","message":"…","retry_after_ms":1000}
type Answer struct {
	ID         int64
	Job        dispatcherd.JobID // the row of a durable request; 0 = none
	Worker     string            // that ran it; "" = none
	Result     []byte            // JSON; of an answer without a code
	Code       string            // the name of a problem in docs/api.md; "" = success
	Message    string            // for people
	RetryAfter time.Duration     // after which another try makes sense; 0 = not said
}

func (*Answer) fromDispatcher() {}

func (m *Answer) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"op":"answer","id":`...), m.ID)
	if m.Job != 0 {
		dst = appendInt(append(dst, `,"job":`...), int64(m.Job))
	}
	dst = appendText(dst, `,"worker":`, m.Worker)
	if m.Code == "" {
		return append(appendRaw(dst, `,"result":`, m.Result), '}')
	}
	dst = appendString(append(dst, `,"code":`...), m.Code)
	dst = appendText(dst, `,"message":`, m.Message)
	return append(appendMillis(dst, `,"retry_after_ms":`, m.RetryAfter), '}')
}

func (m *Answer) field(key []byte, s *scanner) {
	switch string(key) {
	case "id":
		m.ID = s.integer(1, maxInt64)
	case "job":
		m.Job = dispatcherd.JobID(s.integer(0, maxInt64))
	case "worker":
		m.Worker = s.symbol(unbounded)
	case "result":
		m.Result = s.raw()
	case "code":
		m.Code = s.symbol(unbounded)
	case "message":
		m.Message = s.text(MaxMessageLength)
	case "retry_after_ms":
		m.RetryAfter = s.millis()
	default:
		s.unknown(key)
	}
}

func (m *Answer) check(s *scanner) { s.require(m.ID != 0, "id") }

// Size is an upper bound of the frame's length.
func (m *Answer) Size() int {
	return len(m.Result) + 6*(len(m.Worker)+min(len(m.Message), MaxMessageLength)) + 256
}
