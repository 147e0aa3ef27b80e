package workerproto

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Session is one welcomed connection of a worker. Send, Close and the getters
// may be called from any goroutine, also after the session has ended.
type Session struct {
	// Value is the handler's own. Set it in Open; the package never looks at
	// it.
	Value any

	nonce   string
	worker  string
	peer    Peer
	conn    net.Conn
	limits  Limits
	obs     Observer
	in      lines
	out     *outbox
	decoder WorkerDecoder
	machine *machine // of the reader goroutine
	hello   *Hello   // until the welcome
	resumed []Resumed

	mu      sync.Mutex
	cause   error     // why the session ends; the first one counts
	lingers time.Time // until then what is on its way is still read; zero = no end in sight
}

func newSession(conn net.Conn, limits Limits, obs Observer) *Session {
	s := &Session{nonce: newNonce(), peer: peerOf(conn), conn: conn, limits: limits, obs: obs}
	s.in = lines{conn: conn, max: limits.MaxFrame}
	s.out = newOutbox(conn, limits.Outbox, limits.WriteTimeout, obs.Sent)
	s.machine = newMachine(s.nonce, limits, s.peer)
	return s
}

// newNonce makes a session's nonce: 128 random bits.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	return hex.EncodeToString(b[:])
}

// Nonce returns the random name of the session.
func (s *Session) Nonce() string { return s.nonce }

// Worker returns the name that the worker gave itself.
func (s *Session) Worker() string { return s.worker }

// Peer returns who connected, as the kernel says.
func (s *Session) Peer() Peer { return s.peer }

// Fits reports whether the job fits into a frame. One that does not must be
// failed; Send would refuse it.
func (s *Session) Fits(f *Job) bool { return f.size() <= s.limits.MaxFrame }

// Send queues a frame and never blocks; the frame must not be touched
// afterwards. False means that it will not be delivered: the session has
// ended, or ends with SlowReader because too many frames wait already, or a
// job does not fit. True is no promise that the worker reads it. A frame about
// a job gets the session's nonce; one that carries another nonce was meant for
// somebody else and is refused.
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

func (s *Session) send(f DispatcherFrame) bool {
	switch s.out.put(f) {
	case putOK:
		return true
	case putFull:
		// Nothing can be said to somebody who does not read.
		s.abort(Complain(SlowReader, 0, "too many frames wait to be read"))
		s.obs.Complained(SlowReader)
	}
	return false
}

// Close ends the session: what waits is written, then err (nil for none), then
// the connection is closed. It does not wait for that. Later calls change
// nothing.
func (s *Session) Close(err *Error) {
	if err == nil {
		s.fail(net.ErrClosed)
		s.out.close(nil)
		return
	}
	err.Fatal = true
	s.fail(err)
	s.obs.Complained(err.Code)
	s.out.close(err)
}

// Resume takes back an execution that the worker presented in its hello: its
// slot is registered, busy, and the worker reports under this session. To be
// called by Handler.Open only. False means that the hello presents no such
// execution.
func (s *Session) Resume(job dispatcherd.JobID, attempt dispatcherd.Attempt) bool {
	if s.hello == nil {
		return false
	}
	for i := range s.hello.Running {
		r := &s.hello.Running[i]
		if r.Job == job && r.Attempt == attempt {
			s.machine.resume(r.Number)
			s.resumed = append(s.resumed, Resumed{Job: job, Attempt: attempt})
			return true
		}
	}
	return false
}

// fail keeps the first cause.
func (s *Session) fail(cause error) {
	s.mu.Lock()
	if s.cause == nil {
		s.cause = cause
	}
	s.mu.Unlock()
}

func (s *Session) ending() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// abort ends the session at once: whoever blocks on the connection returns.
func (s *Session) abort(cause error) {
	s.fail(cause)
	s.out.discard()
	_ = s.conn.Close() // nothing left to be said
}

// writer runs the outbox. When it ends by order the connection is closed. When
// the peer is gone, what it wrote before it went is still to be read: the
// reader goes on to the end of the stream.
func (s *Session) writer(done chan<- struct{}) {
	defer close(done)
	err := s.out.write()
	switch {
	case err == nil && s.linger():
	case err == nil:
		_ = s.conn.Close()
	case errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe):
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.obs.Complained(SlowReader)
		s.abort(Complain(SlowReader, 0, "nothing was read for %v", s.limits.WriteTimeout))
	default:
		s.abort(err)
	}
}

// lingering bounds how long reports that crossed the dispatcher's goodbye are
// read.
const lingering = time.Second

// linger ends a session that nobody is to blame for: the worker's reports that
// are on their way still count, up to its own end of the stream. It reports
// false if the connection has to be closed at once.
func (s *Session) linger() bool {
	var rule *Error
	half, ok := s.conn.(interface{ CloseWrite() error })
	if !ok || !errors.As(s.ending(), &rule) || rule.Code != ShuttingDown || half.CloseWrite() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lingers = time.Now().Add(lingering)
	return s.conn.SetReadDeadline(s.lingers) == nil
}

// deadline sets until when the next read may wait. It reports false if the session
// lingers and its time is over.
func (s *Session) deadline(now, until time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lingers.IsZero() && until.After(s.lingers) {
		until = s.lingers
	}
	_ = s.conn.SetReadDeadline(until) // fails on a closed connection only, and then the read does too
	return until.After(now)
}
