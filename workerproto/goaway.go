package workerproto

import "time"

// GoAway says that the dispatcher is about to stop: it sends no more jobs in this
// session, executions may end and be reported within Grace, and then the connection
// is closed. The worker reconnects.
//
//	{"op":"goaway","reason":"dispatcher stops","grace_ms":30000}
type GoAway struct {
	Reason string // for people; cut to MaxMessageLength bytes
	Grace  time.Duration
}

func (*GoAway) fromDispatcher() {}

func (m *GoAway) appendTo(dst []byte) []byte {
	dst = appendString(append(dst, `{"op":"goaway","reason":`...), truncate(m.Reason, MaxMessageLength))
	return append(appendMillis(dst, `,"grace_ms":`, m.Grace), '}')
}

func (m *GoAway) field(key []byte, s *scanner) {
	switch string(key) {
	case "reason":
		m.Reason = s.text(MaxMessageLength)
	case "grace_ms":
		m.Grace = s.millis()
	default:
		s.unknown(key)
	}
}

func (m *GoAway) check(*scanner) {}
