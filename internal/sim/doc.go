// Package sim simulates clusters of dispatchers with injected faults, in one
// goroutine, and checks every transition against the guarantees. A simulated
// cluster is called a world. The seed determines the world: the same seed gives
// the same effects on every platform.
//
// # What is real
//
// Each dispatcher is a real actor.Core with the limits of production, in the shell
// of production: package internal/shell routes its effects, sends heartbeats, joins
// again, keeps the lease, and decides the stages of a stop. Jobs with keys are admitted by
// the real admission.Controller, and ends are counted by the real flowstore.Service with flow.Step. The steps of
// both run in coroutines. The simulator replaces the outer layer of the daemon: connections
// to Postgres, sockets and timers.
//
// # What is simulated
//
//   - Postgres: claimfake.Table, which the contract suite of package claim compares
//     with Postgres. A statement arrives, takes its snapshot, locks rows one by one
//     (waiting, or with SKIP LOCKED), commits at one instant, and answers. Each step
//     may be slow, may be lost, or may occur long after the client gave up. Several
//     claims and finishes are in flight. Leases use the database clock.
//   - NOTIFY: a notification may be lost, late or duplicated.
//   - Workers: they add and remove slots, execute jobs, answer once, twice or
//     late, insert children, drain, crash, and are suspended. Connections break at both ends at
//     different times, but lose no frame in the middle.
//   - Detached executions: workers keep them for the resume window, reconnect
//     soon, late or to another dispatcher, and offer to resume them. Offers
//     include executions whose report was possibly lost, and sometimes invalid
//     ones. Dispatchers that stop hand their running jobs over.
//   - Producers, whose inserts commit out of order, and callers, who have
//     deadlines and disconnect. Some producers insert flows, or batches in several
//     transactions. Nodes also depend on jobs outside of their flow.
//   - Rows: some payloads are large or unreadable. Postgres refuses to claim some
//     rows for a while. Other programs lock rows and change type and priority.
//   - Clocks: on each host and in the database they run fast or slow, and jump.
//
// All of this is one heap of tasks, ordered by time and then by insertion.
//
// # What is checked
//
//   - At each claim: the row is pending and due, and its dispatcher is not
//     declared lost.
//   - At each claim of a job with keys: it fits its keys beside all running jobs, and
//     the fence of a key with capacity 1 grows.
//   - At each admission: it is the first of its class, and passes no job that waits for
//     its retry at a key with OnRetry Wait.
//   - At each release of a waiting job: it is the first one, its batch is sealed, all jobs for which
//     it waited have ended, and its run_when applies.
//   - At each refusal: the dispatcher reports the row and claims it only after a pause.
//   - At each send: the payload is complete and readable.
//   - At each end: the attempt is the current one, and a job recorded as done
//     succeeded on a worker.
//   - At each start of an execution: the slot supports the type and is free, and
//     no attempt starts twice or without a claim.
//   - At each answer: it is the only answer of its request.
//   - At each adoption: the worker that started the current attempt offers it,
//     from the session in which it started.
//   - At each release: the worker is not known to continue the attempt. Jobs
//     that were handed over wait for the whole resume window and count no crash.
//   - At a stop: the dispatcher waits for running jobs for the grace period.
//   - At samples: no slot stays free while a job waits whose type it supports;
//     no core spins; a claim lists each running row of a lost dispatcher; no
//     placement overtakes a job beyond the overtaking window; no job waits for long
//     after the end of its parent.
//   - At the end, without further faults: every job is final, every request is
//     answered, and every slot is registered and free.
//
// Worlds that lack one safeguard (see Break) show that the checks can fail: each
// of them must cause a violation.
//
// # Replay
//
// A failure prints the command that runs the same world again:
//
//	go test ./internal/sim -run TestSeed -seed=N -steps=M -v
//
// testdata/seeds.txt contains seeds that found a defect.
package sim
