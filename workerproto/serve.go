package workerproto

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Handler is what the dispatcher does with its workers. For one session all
// calls come from one goroutine, its reader, in the order Open, Frames…,
// Closed; different sessions call at the same time.
type Handler interface {
	// Open is called after a valid hello, before the welcome is sent: jobs sent
	// from here on reach the worker after the welcome. An *Error refuses the
	// worker with that error; another error refuses it with code Internal and
	// without its text. The hello is the handler's to keep.
	Open(s *Session, h *Hello) error
	// Frames takes everything that was decoded from one read: SlotAdd,
	// SlotRemove, Done, Fail, Release, Progress, Partial, Log and Drain, in the
	// order of sending, checked against the rules of the protocol. Slice and
	// frames are valid during the call only; strings and byte slices in them
	// stay. Blocking here holds back this worker alone. Whether the worker holds
	// the job it reports about is the handler's to decide: if not, it answers
	// with Complain(NotHeld, …) or Stale.
	Frames(s *Session, frames []WorkerFrame)
	// Closed is called exactly once for each Open that returned nil, after the
	// last Frames: io.EOF if the worker hung up between two frames,
	// io.ErrUnexpectedEOF in the middle of one, an *Error if a rule was broken
	// or the session was closed with one.
	Closed(s *Session, cause error)
}

// Serve accepts workers from l until ctx is done, then closes l, ends all
// sessions with ShuttingDown, and returns when their last Closed has returned.
// To let workers finish, send GoAway and wait before ending ctx. The error is
// that of l; nil when ctx ended it.
func Serve(ctx context.Context, l net.Listener, limits Limits, h Handler, obs Observer) error {
	if obs == nil {
		obs = NoObserver{}
	}
	srv := &server{limits: limits.WithDefaults(), handler: h, obs: obs, open: make(map[*Session]struct{})}
	released := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(released)
		_ = l.Close() // makes Accept return
		srv.shutDown()
	})
	err := srv.accept(ctx, l)
	if !stop() {
		<-released // path and lock are free when Serve returns
	}
	srv.shutDown()
	srv.running.Wait()
	if ctx.Err() != nil {
		err = nil // that of the listener we closed
	}
	return err
}

type server struct {
	limits  Limits
	handler Handler
	obs     Observer
	running sync.WaitGroup

	mu       sync.Mutex
	open     map[*Session]struct{} // also those still greeting
	stopping bool
}

// accept takes connections until the listener is closed. When the process has
// no descriptors left it pauses instead of spinning: 5 ms, doubling to 1 s.
func (srv *server) accept(ctx context.Context, l net.Listener) error {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		conn, err := l.Accept()
		if err == nil {
			pause = shortest
			srv.admit(conn)
			continue
		}
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return err
		}
		srv.obs.AcceptFailed(err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		pause = min(2*pause, longest)
	}
}

// admit starts a session, or answers in one write that there is no place.
func (srv *server) admit(conn net.Conn) {
	s := newSession(conn, srv.limits, srv.obs)
	srv.mu.Lock()
	full := len(srv.open) >= srv.limits.MaxConnections
	stopping := srv.stopping
	if !full && !stopping {
		srv.open[s] = struct{}{}
		srv.running.Add(1)
	}
	n := len(srv.open)
	srv.mu.Unlock()
	switch {
	case stopping:
		srv.turnAway(conn, Complain(ShuttingDown, 0, "the dispatcher stops"))
	case full:
		srv.turnAway(conn, Complain(TooManyConnections, 0, "%d connections are open already; try again later", n))
	default:
		srv.obs.Accepted(n)
		go srv.run(s)
	}
}

func (srv *server) turnAway(conn net.Conn, err *Error) {
	srv.obs.Complained(err.Code)
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(Append(nil, err)) // fits into the buffer of a fresh socket
	_ = conn.Close()
}

func (srv *server) shutDown() {
	srv.mu.Lock()
	srv.stopping = true
	all := make([]*Session, 0, len(srv.open))
	for s := range srv.open {
		all = append(all, s)
	}
	srv.mu.Unlock()
	for _, s := range all {
		s.Close(Complain(ShuttingDown, 0, "the dispatcher stops; reconnect"))
	}
}

// run is the life of one connection, in its reader goroutine.
func (srv *server) run(s *Session) {
	defer srv.running.Done()
	written := make(chan struct{})
	go s.writer(written)
	opened, cause := srv.greet(s)
	if cause == nil {
		cause = srv.converse(s)
	}
	s.finish(cause)
	<-written
	_ = s.conn.Close() // also one that lingered
	srv.mu.Lock()
	delete(srv.open, s)
	n := len(srv.open)
	srv.mu.Unlock()
	if opened {
		srv.handler.Closed(s, s.ending())
	}
	srv.obs.Ended(n, s.ending())
}

// finish ends the writer: with the complaint if a rule was broken.
func (s *Session) finish(cause error) {
	var rule *Error
	if errors.As(cause, &rule) && s.ending() == nil {
		if rule.Code == HeartbeatTimeout {
			s.out.forget() // what it holds is about to be taken from it
		}
		s.Close(rule)
		return
	}
	s.fail(cause)
	s.out.close(nil)
}
