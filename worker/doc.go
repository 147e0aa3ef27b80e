// Package worker turns a Go program into a worker of dispatcherd.
//
//	w := worker.New(worker.Options{Socket: "/run/dispatcherd/worker.sock", Name: "pdf-1"})
//	w.Handle("pdf", func(ctx context.Context, job *worker.Job) (any, error) {
//		return render(ctx, job.Payload)
//	})
//	w.Slots(4, "pdf")
//	err := w.Run(ctx) // until ctx is done; then drains
//
// A handler is called once for each execution. Its goroutine runs nothing else until
// the handler returns. A slot runs one execution at a time. The error of the handler
// decides how the execution ends: nil ends the job with the result, [Permanent] fails
// it without a retry, [RetryAfter] sets the delay of the retry, and any other error
// uses the backoff of the dispatcher. A panic is a failure whose text contains the
// stack. The process continues.
//
// # The context of an execution
//
// The context of an execution ends when the result is no longer needed. [context.Cause]
// is then [ErrCancelled], [ErrStale], [ErrTimeout], [ErrLost] or [ErrStopping]. ErrLost
// means that the connection is gone and the dispatcher retries the job on another
// worker. ErrStopping means that Run's context is done and Grace is over. The worker
// then gives the job back, and this attempt does not count.
//
// # When the connection is lost
//
// The worker reconnects with exponential backoff and jitter. The number of attempts is
// not limited. If the dispatcher permits it (see Parameters.Resume in package
// workerproto), executions continue without a connection, and the next hello offers to
// resume them. If an execution ends meanwhile, the worker keeps the result and offers
// this execution, too. It also offers executions whose report the dispatcher may not
// have read (see [Options].KeptReports). If the dispatcher does not permit it, the
// contexts of the executions end at once. A slot is announced again only when its
// handler has returned, so it never runs two jobs at the same time.
//
// Delivery is at least once: a job may run again after a crash. An execution whose
// attempt is no longer current cannot change anything. The dispatcher answers its
// report with stale.
//
// # Latency
//
// If handlers mostly wait or are very short, GOMAXPROCS=1 gives the lowest latency.
// With more processors the Go runtime wakes a second thread for each goroutine that
// becomes runnable. A request took 96 µs with GOMAXPROCS=1, and 109 µs without.
package worker
