package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Fail ends an execution with a failure of the job. The dispatcher retries the job
// if it has attempts left and the failure is not Permanent. A positive RetryAfter
// replaces the dispatcher's backoff.
//
//	{"op":"fail","job":42,"attempt":1,"session":"9f…","error":"no such file","retry":false}
//	{"op":"fail","job":42,"attempt":2,"session":"9f…","error":"busy","retry_after_ms":5000}
type Fail struct {
	Execution
	Error      string        // cut to dispatcherd.MaxErrorLength bytes
	Permanent  bool          // "retry" is false; without the field it is true
	RetryAfter time.Duration // ≥ 0, whole milliseconds on the wire, at most a year
}

func (*Fail) fromWorker() {}

func (m *Fail) appendTo(dst []byte) []byte {
	dst = m.appendFields(append(dst, `{"op":"fail"`...))
	dst = appendString(append(dst, `,"error":`...), truncate(m.Error, dispatcherd.MaxErrorLength))
	if m.Permanent {
		dst = append(dst, `,"retry":false`...)
	}
	dst = appendMillis(dst, `,"retry_after_ms":`, m.RetryAfter)
	return append(dst, '}')
}

func (m *Fail) field(key []byte, s *scanner) {
	switch string(key) {
	case "error":
		m.Error = s.text(dispatcherd.MaxErrorLength)
	case "retry":
		m.Permanent = !s.boolean(true)
	case "retry_after_ms":
		m.RetryAfter = s.millis()
	default:
		if !m.member(key, s) {
			s.unknown(key)
		}
	}
}
