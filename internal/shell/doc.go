// Package shell is the part of the dispatcher between the Core and the outside world that
// needs no goroutine, no clock and no I/O. The daemon calls it from its goroutines, with
// real clocks and Postgres; the simulator calls the same code with its own scheduler.
//
//   - Ports carries out effects: it routes each one to the component that owns it.
//   - Lease decides when heartbeats are sent, what follows from their answers, until when
//     this dispatcher may rely on the last one, and what the answer of a claim or an
//     adoption is worth without a lease.
//   - Deliver turns the frames of a worker into events; other functions do so with
//     notifications.
//   - Stop decides what comes next while the dispatcher stops.
//
// Time is a time.Duration since an arbitrary zero of the caller's monotonic clock. Nothing
// in this package may be called by several goroutines at once.
package shell
