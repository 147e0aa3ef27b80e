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
// it returns, and a slot runs one execution at a time. The handler's error decides:
// nil ends the job with the result, [Permanent] fails it without a retry,
// [RetryAfter] sets the delay of the retry, and any other error uses the backoff of
// the dispatcher. A panic is a failure with its stack; the process continues.
//
// # The context of an execution
//
// The context of an execution ends when the result is not wanted any more.
// [context.Cause] is [ErrCancelled], [ErrStale], [ErrTimeout], [ErrLost] or
// [ErrStopping]. ErrLost means that the connection is gone and the dispatcher
// retries the job on another worker. ErrStopping means that Run's context is done
// and Grace is over. The job is then given back, and this attempt does not count.
//
// # When the connection is lost
//
// The worker reconnects with exponential backoff and jitter, without limit. If the
// dispatcher supports it (see Parameters.Resume in package workerproto), executions
// continue meanwhile, and the next hello offers to resume them. The worker keeps
// the results of ended executions and offers these executions, too. This includes
// executions whose report may not have been read (see [Options].KeptReports). If
// the dispatcher does not support it, the contexts of the executions end at once. A
// slot is announced again only when its handler has returned, so it never runs two
// jobs.
//
// Delivery is at least once: a job may run again after a crash. An execution whose
// attempt is no longer current cannot change anything; the dispatcher answers stale.
//
// # Latency
//
// If handlers mostly wait or are very short, GOMAXPROCS=1 gives the lowest latency:
// with more processors the Go runtime wakes a second thread for each goroutine
// that becomes runnable. A request took 96 µs instead of 109 with it.
package worker
