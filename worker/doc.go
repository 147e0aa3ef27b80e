// Package worker turns a Go program into a worker of dispatcherd.
//
//	w := worker.New(worker.Options{Socket: "/run/dispatcherd/worker.sock", Name: "pdf-1"})
//	w.Handle("pdf", func(ctx context.Context, job *worker.Job) (any, error) {
//		return render(ctx, job.Payload)
//	})
//	w.Slots(4, "pdf")
//	err := w.Run(ctx) // until ctx is done; then drains
//
// The worker calls a handler once for each execution. The goroutine of the handler runs
// nothing else until the handler returns. A slot runs one execution at a time. The error
// of the handler decides how the execution ends: nil ends the job with the result,
// [Permanent] fails it without a retry, [RetryAfter] sets the delay of the retry, and any
// other error uses the backoff of the dispatcher. A panic of the handler, or of a method
// of the returned result or error, is a failure whose text contains the stack. The process
// continues. But a panic of a goroutine that the handler has started ends the process, and
// so does a fatal error of the Go runtime, such as a stack overflow or concurrent writes
// to a map.
//
// # The context of an execution
//
// The context of an execution ends when the result is no longer needed. [context.Cause]
// is then [ErrCancelled], [ErrStale], [ErrTimeout], [ErrLost] or [ErrStopping]. ErrLost
// means that the connection is gone and the dispatcher retries the job on another
// worker. ErrStopping means that Run's context is done and Grace is over. The worker
// then gives the job back, and this attempt does not count.
//
// A handler that does not return after the end of its context keeps its slot. If it ignores
// a cancel, the dispatcher ends the session after its --cancel-grace. The worker reconnects
// and offers to resume its other executions. It announces the slot when the handler returns.
//
// # When the connection is lost
//
// The worker reconnects with exponential backoff and jitter. The number of attempts is
// not limited. If the dispatcher permits resuming (see Parameters.Resume in package
// workerproto), executions continue without a connection, and the next hello offers to
// resume them. If an execution ends meanwhile, the worker keeps the result and offers
// this execution, too. The worker also offers executions whose report the dispatcher may
// not have read (see [Options].KeptReports). Without this permission the contexts of the
// executions end at once. The worker announces a slot again only when its handler has
// returned, so a slot never runs two jobs at the same time.
//
// Delivery is at least once: a job may run again after a crash. An execution whose
// attempt is no longer current changes nothing: the dispatcher answers its report with
// stale.
//
// # Children
//
// A running job may insert jobs with [Job.Spawn]. They are its children: they are cancelled
// when it has ended, and a cancellation of the parent reaches the whole tree.
//
// # Latency
//
// If handlers mostly wait or are very short, GOMAXPROCS=1 gives the lowest latency.
// With more processors the Go runtime wakes a second thread for each goroutine that
// becomes runnable. A request took 96 µs with GOMAXPROCS=1, and 109 µs without.
package worker
