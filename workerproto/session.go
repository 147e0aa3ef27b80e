package workerproto

import (
	"errors"

	"github.com/dispatcherd/dispatcherd"
)

// Session is the dispatcher's end of a worker's connection. Send, Close and the
// getters may be called from any goroutine, also after the session has ended.
type Session struct {
	// Value belongs to the handler, which sets it in Open.
	Value any

	*serverConn
	handler Handler
	worker  string
	decoder WorkerDecoder
	state   *sessionState // of the reader goroutine
	batch   []WorkerFrame // handed to the handler; empty between two reads
	hello   *Hello        // until the welcome
	resumed []Resumed
}

func newSession(c *serverConn, h Handler) *Session {
	return &Session{serverConn: c, handler: h, state: newSessionState(c.nonce, c.limits, c.peer)}
}

// Worker returns the name from the worker's hello.
func (s *Session) Worker() string { return s.worker }

// Fits reports whether the job fits into a frame. One that does not must be
// failed: Send rejects it.
func (s *Session) Fits(f *Job) bool { return f.size() <= s.limits.MaxFrame }

// Send queues a frame and never blocks; the frame must not be changed
// afterwards. False means that it will not be delivered: the session has
// ended, or ends with SlowReader because too many frames wait already, or a
// job does not fit. True does not mean that the worker reads it. A frame about
// a job gets the session's nonce; one that carries another nonce belongs to
// another session and is rejected.
func (s *Session) Send(f DispatcherFrame) bool {
	if n, ok := f.(named); ok {
		e := n.execution()
		if e.Session == "" {
			e.Session = s.nonce
		}
		if e.Session != s.nonce {
			return false
		}
	}
	if j, ok := f.(*Job); ok && !s.Fits(j) {
		return false
	}
	return s.send(f)
}

// Resume takes back an execution that the worker offered in its hello: its
// slot is registered, busy, and the worker reports under this session. Only
// Handler.Open may call it. False means that the hello offers no such
// execution.
func (s *Session) Resume(job dispatcherd.JobID, attempt dispatcherd.Attempt) bool {
	if s.hello == nil {
		return false
	}
	for i := range s.hello.Running {
		r := &s.hello.Running[i]
		if r.Job == job && r.Attempt == attempt {
			s.state.resume(r.Number)
			s.resumed = append(s.resumed, Resumed{Job: job, Attempt: attempt})
			return true
		}
	}
	return false
}

// handshake decodes the hello, asks the handler, and welcomes the worker.
func (s *Session) handshake(line []byte) error {
	f, fault := s.decode(line)
	if fault != nil {
		return fault
	}
	hello := f.(*Hello)
	s.worker, s.hello = hello.Worker, hello
	return s.open(hello)
}

// open runs Handler.Open with the outbox held back, so that the welcome is the
// first frame that the worker reads.
func (s *Session) open(hello *Hello) error {
	w := &Welcome{Version: version(hello), Session: s.nonce, Dispatcher: s.limits.Dispatcher, Limits: s.limits.parameters()}
	s.out.hold(s.limits.Outbox + 2*s.limits.MaxSlots)
	if err := s.handler.Open(s, hello); err != nil {
		var rule *Error
		if !errors.As(err, &rule) {
			rule = Complain(Internal, 0, "the dispatcher could not register the worker; try again later")
		}
		return rule
	}
	w.Resumed = s.resumed
	s.hello = nil
	s.resize()
	s.out.release(w)
	return nil
}

// receive hands everything that was read to the handler.
func (s *Session) receive() error {
	err := s.collect()
	if len(s.batch) > 0 {
		s.handler.Frames(s, s.batch)
	}
	s.batch = emptied(s.batch)
	s.decoder.Reset()
	return err
}

func (s *Session) shrink() { s.decoder.shrink() }

func (s *Session) closed(cause error) { s.handler.Closed(s, cause) }

// collect decodes every complete line into the batch. Errors that are not fatal
// are answered; a fatal one ends the batch.
func (s *Session) collect() error {
	framing, fault := s.eachLine(s.takeLine)
	if framing != nil {
		return s.state.verdict(framing)
	}
	return asError(fault)
}

// takeLine decodes a line and adds its frame to the batch. An error is fatal.
func (s *Session) takeLine(line []byte) *Error {
	f, fault := s.decode(line)
	switch {
	case fault == nil:
		s.take(f)
	case fault.Fatal:
		return fault
	default:
		s.obs.Complained(fault.Code)
		s.send(fault)
		if end := s.decoder.ending(fault); end != nil && s.state.accept(end) == nil {
			s.batch = append(s.batch, end)
		}
	}
	return nil
}

// decode decodes a line and checks the frame against the session's state.
func (s *Session) decode(line []byte) (WorkerFrame, *Error) {
	f, fault := s.decoder.Decode(line)
	if fault != nil {
		return nil, s.state.verdict(fault)
	}
	return f, s.state.accept(f)
}

// take adds a valid frame to the batch. Heartbeats are dealt with here.
func (s *Session) take(f WorkerFrame) {
	switch f.(type) {
	case *Ping:
		s.send(pong)
		return
	case *Pong:
		return
	case *SlotAdd:
		s.resize()
	}
	s.batch = append(s.batch, f)
}

// resize admits two queued frames per slot, a job and its cancel, in addition
// to the others. The limit never shrinks: frames queued for removed slots may
// still be waiting.
func (s *Session) resize() {
	s.out.grow(s.limits.Outbox + 2*len(s.state.slots))
}
