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

	session[WorkerFrame]
	handler Handler
	worker  string
	moves   bool
	state   *sessionState // used by the reader goroutine only
	opening *Hello        // set until Open returns
	resumed []Resumed     // for the welcome
}

func newSession(c *serverConn, h Handler) *Session {
	s := &Session{handler: h, state: &sessionState{nonce: c.nonce, limits: c.limits}}
	s.session = session[WorkerFrame]{serverConn: c, decoder: NewWorkerDecoder(), rules: s}
	s.decoder.codec.session = c.nonce
	return s
}

// Worker returns the name from the worker's hello.
func (s *Session) Worker() string { return s.worker }

// Moves reports whether the worker knows other dispatchers.
func (s *Session) Moves() bool { return s.moves }

// Fits reports whether the job fits into a frame. Send rejects a job that does not fit,
// so the caller must fail it.
func (s *Session) Fits(f *Job) bool { return f.size() <= s.limits.MaxFrame }

// Send queues a frame and never blocks. The frame must not be changed afterwards. A frame
// about a job that names no session is sent with the nonce of this session.
//
// Send returns false if the frame will not be delivered. There are four reasons: the
// session has ended; the call ends it with SlowReader because too many frames are
// queued; a job does not fit into a frame; the frame contains the nonce of another
// session. If Send returns true, the worker may still not read the frame.
func (s *Session) Send(f DispatcherFrame) bool {
	if n, ok := f.(named); ok && n.execution().Session != "" && n.execution().Session != s.nonce {
		return false
	}
	if j, ok := f.(*Job); ok && !s.Fits(j) {
		return false
	}
	return s.send(f)
}

// Resume resumes an execution that the worker offered in its hello. It registers the
// slot of the execution as busy. The worker reports the execution in this session. Only
// Handler.Open may call Resume. Resume returns false if the hello offers no such
// execution.
func (s *Session) Resume(job dispatcherd.JobID, attempt dispatcherd.Attempt) bool {
	if s.opening == nil {
		return false
	}
	for i := range s.opening.Running {
		r := &s.opening.Running[i]
		if r.Job == job && r.Attempt == attempt {
			s.state.add([]Slot{r.Slot})
			s.resumed = append(s.resumed, Resumed{Job: job, Attempt: attempt})
			return true
		}
	}
	return false
}

// hello implements rules. It asks the handler and welcomes the worker. The writer starts when hello has returned, so that the
// welcome is the first frame that the worker reads, and may be completed here.
func (s *Session) hello(f WorkerFrame) error {
	hello, ok := f.(*Hello)
	if ok {
		if fault := s.identify(&hello.Token); fault != nil {
			return fault
		}
		s.state.peer = s.peer
	}
	if fault := s.state.accept(f); fault != nil {
		return fault
	}
	s.worker, s.moves, s.opening = hello.Worker, hello.Moves, hello
	w := s.welcome(hello.MaxVersion, s.remote)
	s.send(w)
	s.out.grow(s.room() + 2*len(hello.Running))
	if err := s.handler.Open(s, hello); err != nil {
		if _, ok := errors.AsType[*Error](err); !ok {
			err = Complain(Internal, "the dispatcher could not register the worker; try again later")
		}
		s.out.clear()
		return err
	}
	s.opening, w.Resumed = nil, s.resumed
	return nil
}

// accept implements rules.
func (s *Session) accept(f WorkerFrame) *Error {
	fault := s.state.accept(f)
	if _, ok := f.(*SlotAdd); ok {
		s.out.grow(s.room())
	}
	return fault
}

// reject implements rules. If the frame would have ended an execution, a failure takes its place, unless that violates a rule, too.
func (s *Session) reject(f WorkerFrame, fault *Error) {
	s.send(fault)
	if end := failureFor(f, fault); end != nil && s.state.accept(end) == nil {
		s.batch = append(s.batch, end)
	}
}

// failureFor returns a failure that replaces a rejected done, fail or release. Without
// it the execution would never end, because the worker considers it ended. failureFor
// returns nil for other frames, and for a frame that does not say which execution it
// ends.
func failureFor(f WorkerFrame, fault *Error) *Fail {
	switch f.(type) {
	case *Done, *Fail, *Release:
		if e := *f.(named).execution(); e.Job != 0 && e.Attempt > 0 && e.Session != "" {
			return &Fail{Execution: e, Error: "the worker's report was refused: " + fault.Error(), Permanent: true}
		}
	}
	return nil
}

func (s *Session) frames(batch []WorkerFrame) { s.handler.Frames(s, batch) }

func (s *Session) closed(cause error) { s.handler.Closed(s, cause) }

// room returns the number of frames that may be queued: Limits.Outbox and two for each
// slot, a job and its cancel. The limit of the outbox never shrinks, because frames for
// removed slots may still be queued.
func (s *Session) room() int { return s.limits.Outbox + 2*len(s.state.slots) }
