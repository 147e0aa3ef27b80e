package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Job starts an execution on a free slot.
//
//	{"op":"job","job":42,"attempt":1,"session":"9f…","slot":0,"type":"pdf","mode":"queued","payload":{"page":1},"timeout_ms":60000,"age_ms":1500}
type Job struct {
	Execution
	Slot    int32 // the worker's number of the slot
	Type    string
	Mode    dispatcherd.Mode
	Payload []byte        // JSON; nil if there is none
	Timeout time.Duration // limit of this attempt; 0 = none
	Age     time.Duration // since the job was due
}

func (*Job) fromDispatcher() {}

func (m *Job) appendTo(dst []byte) []byte {
	dst = m.appendFields(append(dst, `{"op":"job"`...))
	dst = appendInt(append(dst, `,"slot":`...), int64(m.Slot))
	dst = appendString(append(dst, `,"type":`...), m.Type)
	if m.Mode == dispatcherd.OnDemand {
		dst = append(dst, `,"mode":"on_demand"`...)
	} else {
		dst = append(dst, `,"mode":"queued"`...)
	}
	dst = appendRaw(dst, `,"payload":`, m.Payload)
	dst = appendMillis(dst, `,"timeout_ms":`, m.Timeout)
	dst = appendMillis(dst, `,"age_ms":`, m.Age)
	return append(dst, '}')
}

func (m *Job) field(key []byte, s *scanner) {
	switch string(key) {
	case "slot":
		m.Slot = int32(s.integer(0, maxInt32))
	case "type":
		m.Type = s.symbol(unbounded)
	case "mode":
		m.mode(s)
	case "payload":
		m.Payload = s.raw()
	case "timeout_ms":
		m.Timeout = s.millis()
	case "age_ms":
		m.Age = s.millis()
	default:
		if !m.member(key, s) {
			s.unknown(key)
		}
	}
}

func (m *Job) mode(s *scanner) {
	switch s.symbol(maxSymbol) {
	case "", "queued":
		m.Mode = dispatcherd.Queued
	case "on_demand":
		m.Mode = dispatcherd.OnDemand
	default:
		s.bad("field \"mode\" must be queued or on_demand")
	}
}

func (m *Job) check(s *scanner) {
	m.Execution.check(s)
	s.require(m.Type != "", "type")
}

// size is an upper bound of the frame's length on the wire, escapes in the
// type included.
func (m *Job) size() int { return len(m.Payload) + 6*len(m.Type) + 256 }
