package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Run connects, executes jobs, and reconnects until ctx is done. Then it drains:
// running jobs may end within Grace. After Grace their contexts are cancelled, and
// the jobs are given back. Run returns nil after a clean stop. It returns an error
// if handlers had to be abandoned, if a function of the Options panics (Run then drains
// first), or if no connection is possible for a permanent reason (socket path, version, bad
// slot, not allowed).
func (w *Worker) Run(ctx context.Context) error {
	if err := w.start(); err != nil {
		return err
	}
	ctx, w.stop = context.WithCancel(ctx)
	defer w.stop()
	defer w.stopExecutors()
	drained := make(chan error, 1)
	undo := context.AfterFunc(ctx, func() { drained <- w.drain() })
	refused := 0   // addresses in a row that refuse this worker
	known := false // a dispatcher has welcomed the worker; if one refuses it later, its token or certificate may be replaced
	for pause := w.opts.MinBackoff; ; pause = min(2*pause, w.opts.MaxBackoff) {
		began := time.Now()
		welcomed, err := w.session(ctx)
		known = known || welcomed
		if ctx.Err() != nil {
			return errors.Join(w.broken, <-drained)
		}
		if refused++; !permanent(err) || known && hasCode(err, workerproto.Refused) {
			refused = 0
		}
		if refused >= len(w.addresses) && undo() {
			w.stopTaking()
			if abandoned := w.awaitIdle(w.opts.Abandon); abandoned != nil {
				err = fmt.Errorf("%w; %w", err, abandoned)
			}
			return err
		}
		call(w, "Disconnected", w.opts.Disconnected, err)
		if time.Since(began) > w.opts.MaxBackoff || welcomed && hasCode(err, workerproto.ShuttingDown) || errors.Is(err, errSentAway) {
			pause = w.opts.MinBackoff // the session lasted, or the next dispatcher is about to start
		}
		w.at++
		wait(ctx, pause/2+rand.N(pause/2+1))
	}
}

// call calls a function of the Options, unless it is nil. If the function panics, Run drains and returns the
// panic.
func call[T any](w *Worker, name string, f func(T), value T) {
	defer func() {
		if v := recover(); v != nil {
			w.broken = fmt.Errorf("worker: Options.%s: %w", name, panicError(v))
			w.stop()
		}
	}()
	if f != nil {
		f(value)
	}
}

// wait waits for d. It returns false if ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// refusals are the codes with which a dispatcher refuses a hello each time.
var refusals = []workerproto.Code{
	workerproto.BadVersion, workerproto.BadSlot, workerproto.BadValue, workerproto.BadJSON, workerproto.Refused, workerproto.NotHello,
}

// permanent reports whether the next attempt to connect would fail for the same reason.
func permanent(err error) bool {
	return errors.Is(err, workerproto.ErrSocketPath) || hasCode(err, refusals...)
}

// hasCode reports whether err is a fatal error of the dispatcher with one of the codes.
func hasCode(err error, codes ...workerproto.Code) bool {
	rule, ok := errors.AsType[*workerproto.Error](err)
	return ok && rule.Fatal && slices.Contains(codes, rule.Code)
}

// session runs one connection from the hello to its end.
func (w *Worker) session(ctx context.Context) (welcomed bool, err error) {
	if w.opts.FindSocket != nil {
		call(w, "FindSocket", func(find func() string) { w.addresses[0] = workerproto.SocketAddress(find()) }, w.opts.FindSocket)
	}
	address := w.addresses[w.at%len(w.addresses)]
	dialing, connects := context.WithCancel(ctx)
	if w.moves() {
		dialing, connects = context.WithTimeout(ctx, dialTimeout)
	}
	hello, offered := w.hello()
	c, err := workerproto.DialAt(dialing, address, &w.opts.Credentials, hello)
	connects()
	if err != nil {
		if hasCode(err, workerproto.FrameTooLong) {
			w.room = 0 // this dispatcher has a smaller frame limit than the last one
		}
		w.disconnected(nil)
		return false, fmt.Errorf("dispatcher at %s: %w", address.Name(), err)
	}
	if !w.connected(c, hello, offered) {
		w.disconnected(nil)
		_ = c.Close()
		return false, context.Cause(ctx)
	}
	w.room = c.Welcome().Limits.MaxFrame / 4 * 3
	connected, end := context.WithCancel(ctx)
	defer end()
	go func() {
		for wait(connected, c.Welcome().Limits.Timeout) {
			w.nextPeriod()
		}
	}()
	if c.Remote() {
		go w.guard(connected, c)
	}
	call(w, "Connected", w.opts.Connected, c.Welcome())
	err = w.receive(c)
	if hasCode(err, workerproto.CancelIgnored) {
		w.loseIgnored(err)
	}
	w.disconnected(c)
	_ = c.Close()
	return true, cmp.Or(w.takeEnded(), err)
}

// loseIgnored gives up the execution that ignored its cancel, because the dispatcher
// retries its job on another worker. The next hello offers the other executions.
func (w *Worker) loseIgnored(err error) {
	rule, _ := errors.AsType[*workerproto.Error](err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loseLocked(func(e *execution) bool { return e.job.ID == rule.Job })
}

// cancelCause returns the cause of a handler's context after a cancel. The timeout of
// the dispatcher starts before that of the worker. So the cancel usually comes before
// the deadline of the context. Both set the same cause.
func cancelCause(reason string) error {
	if reason == workerproto.ReasonTimeout {
		return ErrTimeout
	}
	return fmt.Errorf("%w: %s", ErrCancelled, reason)
}

// receive handles the dispatcher's frames until the connection ends.
func (w *Worker) receive(c *workerproto.Conn) error {
	for {
		frames, err := c.Receive()
		if err != nil {
			return err
		}
		w.begin(c, frames)
		for _, f := range frames {
			switch f := f.(type) {
			case *workerproto.Cancel:
				w.cancel(f.Execution, cancelCause(f.Reason))
			case *workerproto.Stale:
				w.cancel(f.Execution, ErrStale)
			case *workerproto.Spawned:
				w.mu.Lock()
				w.answerSpawnLocked(f)
				w.mu.Unlock()
			case *workerproto.GoAway:
				w.leave(c, f.Grace)
			case *workerproto.Error:
				call(w, "Complaint", w.opts.Complaint, f)
			}
		}
	}
}
