package workerproto

import (
	"context"
	"errors"
	"net"

	"github.com/dispatcherd/dispatcherd"
)

// CallerHandler is the part of the dispatcher that handles the frames of callers. The
// reader goroutine of a session makes all calls for this session, in the order Open,
// Frames…, Closed.
type CallerHandler interface {
	// Open is called after a valid hello, before the welcome is sent.
	Open(s *CallerSession)
	// Frames takes the *Request and *CancelRequest frames of one read, in the order of
	// sending. The slice is valid only during the call.
	Frames(s *CallerSession, frames []CallerFrame)
	// Closed is called exactly once for each Open, after the last Frames.
	Closed(s *CallerSession, cause error)
}

// ServeCallers accepts callers from l. In all other respects it is like [Serve].
func ServeCallers(ctx context.Context, l net.Listener, limits Limits, h CallerHandler, obs Observer) error {
	return serve(ctx, []net.Listener{l}, limits, obs, func(c *serverConn) protocol {
		s := &CallerSession{handler: h}
		s.session = session[CallerFrame]{serverConn: c, decoder: NewCallerDecoder(), rules: s}
		return s
	})
}

// CallerSession is the dispatcher's end of a caller's connection. Send and Close may be
// called from any goroutine, also after the session has ended.
type CallerSession struct {
	// Value belongs to the handler, which sets it in Open.
	Value any

	session[CallerFrame]
	handler CallerHandler
}

// MaxRequests is the limit of open requests.
func (s *CallerSession) MaxRequests() int { return s.limits.MaxRequests }

// MaxFrame is the limit of a frame in either direction.
func (s *CallerSession) MaxFrame() int { return s.limits.MaxFrame }

// Send queues a frame and never blocks. The frame must not be changed afterwards.
// Send returns false if the frame will not be delivered: the session has ended, or
// this call ends it with SlowReader because the outbox is full.
func (s *CallerSession) Send(f DispatcherFrame) bool { return s.send(f) }

// Offer is like Send. But if the user may not have so many bytes of frames that are not read, the session continues and Offer
// returns why.
func (s *CallerSession) Offer(f DispatcherFrame) error {
	switch err := s.put(f); {
	case err == nil, errors.Is(err, net.ErrClosed):
	case errors.Is(err, errFull):
		s.send(f) // ends the session
	default:
		return err
	}
	return nil
}

// hello implements rules.
func (s *CallerSession) hello(f CallerFrame) error {
	h, ok := f.(*CallerHello)
	if !ok {
		return Complain(NotHello, "the first frame must be a hello")
	}
	if fault := h.check(); fault != nil {
		return fault
	}
	if fault := s.identify(&h.Token); fault != nil {
		return fault
	}
	s.handler.Open(s)
	w := s.welcome(h.MaxVersion, false)
	w.Limits.MaxRequests = s.limits.MaxRequests
	s.send(w)
	return nil
}

// check returns an error about a hello that is refused for every sender.
func (m *CallerHello) check() *Error {
	if m.Worker != "" {
		return Complain(NotHello,
			"this is the API socket, and the hello is that of a worker: workers connect to the socket of --worker-socket")
	}
	if fault := checkVersions("caller", m.MinVersion, m.MaxVersion); fault != nil {
		return fault
	}
	if m.Caller != "" && !validName(m.Caller) {
		return Complain(BadValue, "field \"caller\" must have at most %d bytes and no invisible characters", dispatcherd.MaxWorkerLength)
	}
	return nil
}

// accept implements rules.
func (s *CallerSession) accept(f CallerFrame) *Error {
	if _, ok := f.(*CallerHello); ok {
		return Complain(SecondHello, "hello comes once on a connection")
	}
	return nil
}

// reject implements rules. A request whose id is known gets an Answer, because each request gets exactly one. Any other frame
// gets an error frame.
func (s *CallerSession) reject(f CallerFrame, fault *Error) {
	r, ok := f.(*Request)
	if !ok || r.ID == 0 {
		s.send(fault)
		return
	}
	code := CodeInvalidRequest
	if s.decoder.codec.unfit {
		code = CodeInvalidJob
	}
	s.send(&Answer{ID: r.ID, Code: code, Message: fault.Message})
}

// The code of the Answer to a rejected request.
const (
	CodeInvalidRequest = "invalid-request" // the request is malformed
	CodeInvalidJob     = "invalid-job"     // the payload is JSON, but cannot be sent to a worker
)

func (s *CallerSession) frames(batch []CallerFrame) { s.handler.Frames(s, batch) }

func (s *CallerSession) closed(cause error) { s.handler.Closed(s, cause) }
