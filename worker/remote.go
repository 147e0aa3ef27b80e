package worker

import (
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// A remote dispatcher cannot know whether this worker lives when their connection has ended. It waits for a while and
// then gives the jobs to other workers. So this worker stops its executions before: guard measures the time since the
// dispatcher has last answered.

// guard gives up the executions of a connection when the dispatcher has not answered in time, although the connection
// seems to be open. It runs until ctx ends.
func (w *Worker) guard(ctx context.Context, c *workerproto.Conn) {
	for left := c.Keep(); left > 0; left = c.Keep() {
		if !wait(ctx, left) {
			return
		}
	}
	w.mu.Lock()
	if ctx.Err() != nil { // the connection has ended
		w.mu.Unlock()
		return
	}
	w.loseLocked(func(e *execution) bool { return e.conn == c })
	w.ended = errUnanswered
	w.mu.Unlock()
	c.Abort()
}

// leave prepares to close a connection whose dispatcher has told the worker to go away, if the worker knows another
// dispatcher, which then resumes the executions. On-demand requests end before, because no other dispatcher has their callers.
// They have the time grace. So have all executions if none may continue without a connection.
func (w *Worker) leave(c *workerproto.Conn, grace time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.moves() || w.draining {
		return
	}
	time.AfterFunc(grace, func() { _ = c.Close() })
	w.leaving, w.ended = c, errSentAway
	w.leaveIdleLocked()
}

// leaveIdleLocked closes the connection that the worker leaves if no request runs on it.
func (w *Worker) leaveIdleLocked() {
	c := w.leaving
	for _, sl := range w.slots {
		if e := sl.run; e != nil && e.conn == c && (e.job.Mode == dispatcherd.OnDemand || c.Keep() <= 0) {
			return
		}
	}
	w.leaving = nil
	go func() { _ = c.Close() }()
}

// moves reports whether the worker knows several dispatchers.
func (w *Worker) moves() bool { return len(w.addresses) > 1 }

// dialTimeout bounds the time for one of several dispatchers. Executions continue for some seconds only, and the next
// dispatcher may be the one that can resume them.
const dialTimeout = 5 * time.Second

// Reasons for which this worker ends a connection.
var (
	errSentAway   = errors.New("the dispatcher has told this worker to go to another one")
	errUnanswered = errors.New("the dispatcher has not answered in time, so it may give the jobs to other workers")
)

// takeEnded returns why this worker has ended the last connection, or nil.
func (w *Worker) takeEnded() (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err, w.ended, w.leaving = w.ended, nil, nil
	return err
}
