package workerproto

import (
	"context"
	"net"
)

// Handler is what the dispatcher does with its workers. For one session all
// calls come from one goroutine, its reader, in the order Open, Frames…,
// Closed; different sessions call at the same time.
type Handler interface {
	// Open is called after a valid hello, before the welcome is sent. Jobs sent
	// from here on reach the worker after the welcome. An *Error refuses the worker
	// with that error. Any other error refuses it with code Internal and without
	// the text of the error. The handler may keep the hello.
	Open(s *Session, h *Hello) error
	// Frames takes everything that was decoded from one read: SlotAdd,
	// SlotRemove, Done, Fail, Release, Progress, Partial, Log and Drain, in the
	// order of sending, checked against the rules of the protocol. Slice and
	// frames are valid during the call only; strings and byte slices in them
	// stay valid. Blocking here holds back this worker only. The handler decides
	// whether the worker runs the job it reports about: if not, it answers with
	// Complain(NotHeld, …) or Stale.
	Frames(s *Session, frames []WorkerFrame)
	// Closed is called exactly once for each Open that returned nil, after the
	// last Frames: io.EOF if the worker hung up between two frames,
	// io.ErrUnexpectedEOF in the middle of one, an *Error if a rule was broken
	// or the session was closed with one.
	Closed(s *Session, cause error)
}

// Serve accepts workers from l until ctx is done. Then it closes l, ends all
// sessions with ShuttingDown, and returns when their last Closed has returned. To
// let workers finish, send GoAway and wait before ending ctx. Serve returns nil if
// ctx ended it, and otherwise the error of l.
func Serve(ctx context.Context, l net.Listener, limits Limits, h Handler, obs Observer) error {
	return serve(ctx, l, limits, obs, func(c *serverConn) protocol { return newSession(c, h) })
}
