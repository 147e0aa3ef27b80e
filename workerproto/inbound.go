package workerproto

import "github.com/dispatcherd/dispatcherd/internal/quota"

// session is what the sessions of workers and of callers have in common: it decodes lines, answers pings, and collects
// frames for the handler. With closed, a session implements protocol.
type session[F frame] struct {
	*serverConn
	decoder *Decoder[F]
	batch   []F // frames for the handler; empty between two reads
	rules   rules[F]
}

// rules are what a session does with the frames of its direction.
type rules[F frame] interface {
	// hello checks the first frame, opens the session and sends the welcome.
	hello(f F) error
	// accept checks a further frame.
	accept(f F) *Error
	// reject answers a frame that cannot be read or that accept refuses.
	reject(f F, fault *Error)
	// frames passes frames to the handler.
	frames(batch []F)
}

// handshake implements protocol.
func (s *session[F]) handshake(line []byte) error {
	var f F
	var fault *Error
	quota.Parse(s.user, len(line), func() { f, fault = s.decoder.Decode(line) })
	if fault != nil {
		return fault
	}
	return s.rules.hello(f)
}

// take implements protocol.
func (s *session[F]) take(line []byte) *Error {
	f, fault := s.decoder.Decode(line)
	if fault == nil {
		fault = s.rules.accept(f)
	}
	if fault != nil {
		if fault.Fatal {
			return fault
		}
		s.obs.Complained(fault.Code)
		s.rules.reject(f, fault)
		return nil
	}
	switch any(f).(type) {
	case *Ping:
		s.send(s.pong())
	case *Pong:
	default:
		s.batch = append(s.batch, f)
	}
	return nil
}

// deliver implements protocol.
func (s *session[F]) deliver() {
	if len(s.batch) > 0 {
		s.rules.frames(s.batch)
	}
	s.batch = emptied(s.batch)
}
