package workerproto

import (
	"context"
	"net"
)

// Handler is the part of the dispatcher that handles the frames of workers. The reader
// goroutine of a session makes all calls for this session, in the order Open, Frames…,
// Closed. Different sessions make calls at the same time.
type Handler interface {
	// Open is called after a valid hello, before the welcome is sent. Frames that are
	// sent during Open reach the worker after the welcome. If Open returns an error, the
	// worker is refused. An *Error is sent to the worker. For any other error the worker
	// gets the code Internal without the text of the error. The handler may keep the
	// hello.
	Open(s *Session, h *Hello) error
	// Frames takes all frames of one read, in the order of sending: SlotAdd, SlotRemove,
	// Done, Fail, Release, Progress, Partial, Log, Spawn and Drain. They obey the rules of the
	// protocol. The slice is valid only during the call. If Frames blocks, only this worker has to
	// wait. Frames must check whether the worker runs the job that a report is about. If
	// not, it answers with Complain(NotHeld, …) or Stale.
	Frames(s *Session, frames []WorkerFrame)
	// Closed is called exactly once for each Open that returned nil, after the last
	// Frames. cause is io.EOF if the worker disconnected between two frames, and
	// io.ErrUnexpectedEOF in the middle of a frame. It is an *Error if the worker broke
	// a rule or the session was closed with an *Error.
	Closed(s *Session, cause error)
}

// Serve accepts workers from l and more until ctx is done. Then it closes the listeners, ends all
// sessions with ShuttingDown, and returns when the last Closed has returned. To let
// workers finish, send GoAway and wait before ctx is cancelled. Serve returns nil if ctx
// is done, and otherwise the error of a listener.
func Serve(ctx context.Context, l net.Listener, limits Limits, h Handler, obs Observer, more ...net.Listener) error {
	return serve(ctx, append(more, l), limits, obs, func(c *serverConn) protocol { return newSession(c, h) })
}
