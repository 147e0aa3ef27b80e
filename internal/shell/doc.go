// Package shell is the part of the dispatcher between the Core and the outside world that
// needs no goroutine, no clock and no I/O. The daemon calls it from its goroutines, with
// real clocks and Postgres; the simulator calls the same code with its own scheduler.
//
//   - Ports carries out effects: it routes each one to the component that owns it.
//   - Lease decides when heartbeats are sent and what follows from their answers. Lease
//     also decides until when this dispatcher may rely on the last heartbeat. Without
//     a lease it replaces the success of a claim or an adoption by an unknown outcome.
//   - Silence decides which other dispatchers are lost.
//   - Deliver converts the frames of a worker to events.
//   - Stop decides what comes next while the dispatcher stops.
//
// Time is a time.Duration since an arbitrary zero of the caller's monotonic clock.
// Goroutines must not use the same Lease or Stop at the same time.
package shell
