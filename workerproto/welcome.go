package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Welcome answers a valid Hello and begins the session.
//
//	{"op":"welcome","version":1,"session":"9f…","dispatcher":"d1","limits":{"max_frame":1048576,"heartbeat_ms":5000,"timeout_ms":15000,"max_slots":10000,"max_types":4096}}
type Welcome struct {
	Version    int    // the highest that both sides speak
	Session    string // the nonce, 128 random bits as 32 hexadecimal digits
	Dispatcher string // its name, for people
	Limits     Parameters
	Resumed    []Resumed // the executions of Hello.Running that continue; the worker stops the others
}

// Resumed identifies an execution that the dispatcher resumed. From now on it is
// reported in the new session.
type Resumed struct {
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
}

// Parameters are the limits that the peer must know.
type Parameters struct {
	MaxFrame    int           // bytes of a frame, newline excluded
	Heartbeat   time.Duration // silence after which to ping
	Timeout     time.Duration // silence after which to close the connection
	MaxSlots    int           // slots of one session
	MaxTypes    int           // types of one slot
	MaxRequests int           // open requests of a caller's session; 0 to a worker
	Resume      time.Duration // how long executions may continue without a connection; 0 = not at all
}

func (*Welcome) fromDispatcher() {}

func (m *Welcome) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"op":"welcome","version":`...), int64(m.Version))
	dst = appendString(append(dst, `,"session":`...), m.Session)
	dst = appendText(dst, `,"dispatcher":`, m.Dispatcher)
	dst = m.Limits.appendTo(append(dst, `,"limits":`...))
	if len(m.Resumed) > 0 {
		dst = append(dst, `,"resumed":[`...)
		for i, r := range m.Resumed {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendInt(append(dst, `{"job":`...), int64(r.Job))
			dst = append(appendInt(append(dst, `,"attempt":`...), int64(r.Attempt)), '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func (m *Welcome) field(key []byte, s *scanner) {
	switch string(key) {
	case "version":
		m.Version = int(s.integer(0, maxInt32))
	case "session":
		m.Session = s.symbol(maxNonce)
	case "dispatcher":
		m.Dispatcher = s.text(MaxMessageLength)
	case "limits":
		s.object(&m.Limits)
	case "resumed":
		m.Resumed = nil
		for more := s.array(); more; more = s.More(']') {
			var r Resumed
			s.object(&r)
			m.Resumed = append(m.Resumed, r)
		}
	default:
		s.unknown(key)
	}
}

func (m *Welcome) check(s *scanner) {
	s.require(m.Version > 0, "version")
	s.require(m.Session != "", "session")
}

func (r *Resumed) field(key []byte, s *scanner) {
	e := Execution{Job: r.Job, Attempt: r.Attempt}
	if !e.member(key, s) {
		s.Skip()
	}
	r.Job, r.Attempt = e.Job, e.Attempt
}

func (p *Parameters) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"max_frame":`...), int64(p.MaxFrame))
	dst = appendInt(append(dst, `,"heartbeat_ms":`...), p.Heartbeat.Milliseconds())
	dst = appendInt(append(dst, `,"timeout_ms":`...), p.Timeout.Milliseconds())
	if p.MaxRequests > 0 { // to a caller
		return append(appendInt(append(dst, `,"max_requests":`...), int64(p.MaxRequests)), '}')
	}
	dst = appendInt(append(dst, `,"max_slots":`...), int64(p.MaxSlots))
	dst = appendInt(append(dst, `,"max_types":`...), int64(p.MaxTypes))
	return append(appendMillis(dst, `,"resume_ms":`, p.Resume), '}')
}

func (p *Parameters) field(key []byte, s *scanner) {
	switch string(key) {
	case "max_frame":
		p.MaxFrame = int(s.integer(0, maxInt32))
	case "heartbeat_ms":
		p.Heartbeat = s.millis()
	case "timeout_ms":
		p.Timeout = s.millis()
	case "max_requests":
		p.MaxRequests = int(s.integer(0, maxInt32))
	case "max_slots":
		p.MaxSlots = int(s.integer(0, maxInt32))
	case "max_types":
		p.MaxTypes = int(s.integer(0, maxInt32))
	case "resume_ms":
		p.Resume = s.millis()
	default:
		s.Skip()
	}
}
