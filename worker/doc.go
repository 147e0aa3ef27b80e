// Package worker makes a Go program a worker of dispatcherd.
//
//	w := worker.New(worker.Options{Socket: "/run/dispatcherd/worker.sock", Name: "pdf-1"})
//	w.Handle("pdf", func(ctx context.Context, job *worker.Job) (any, error) {
//		return render(ctx, job.Payload)
//	})
//	w.Slots(4, "pdf")
//	err := w.Run(ctx) // until ctx is done; then drains
//
// A handler is called once for each execution, on a goroutine that does
// nothing else until it returns, and never twice at a time on one slot. What it returns decides: a nil error ends
// the job with the result, [Permanent] fails it for good, [RetryAfter] names
// the delay, any other error leaves the retry to the dispatcher. A panic is a
// failure with its stack, and the process lives on.
//
// # The context of an execution
//
// It ends when nobody wants the result any more; [context.Cause] says why:
// [ErrCancelled], [ErrStale], [ErrTimeout], [ErrLost] (the connection is gone
// and the dispatcher gives the job to somebody else), or [ErrStopping] (Run's
// context ended and Grace is over: the job is given back and loses no try).
//
// # When the connection is lost
//
// The worker reconnects with exponential backoff and jitter, for ever. If the
// dispatcher said in its welcome that it takes work back, executions go on
// meanwhile and are presented in the next hello, finished ones with their
// result kept, also those whose result was sent and may not have been read
// (see [Options].KeptReports); otherwise their contexts end at once. A slot is announced again
// only when its handler has returned, so it never runs two jobs.
//
// Delivery is at least once: a job may be run again after a crash. An execution
// whose attempt is no longer the live one cannot change anything (the
// dispatcher answers stale).
package worker
