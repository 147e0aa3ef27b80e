// Package sim runs whole clusters of dispatchers in one goroutine, with
// everything that can go wrong going wrong, and holds every step of it to what
// is promised. A world is made from one seed; the same seed is the same world,
// effect for effect, on every machine.
//
// # What is real
//
// Each dispatcher is a real actor.Core with the daemon's limits. Around it is a
// model of the daemon's shell (one connection to Postgres for each kind of
// statement, the beat, the lease that it trusts, claims' notes, sessions,
// callers, the stages of a stop), which must be kept in step with
// internal/daemon and package claim.
//
// # What is simulated
//
//   - Postgres: one table under READ COMMITTED. A statement travels, arrives,
//     takes its snapshot, locks row by row (waiting, or with SKIP LOCKED), commits
//     in one instant, and answers. Any of that may be slow, be lost, or happen
//     long after the client gave up. Leases are judged by the database's clock;
//   - NOTIFY, which may be lost, late or doubled;
//   - workers with slots that come and go, which execute jobs, answer, answer
//     twice, answer late, drain, die and stand still; connections that break at
//     both ends at different times, but never lose a frame in the middle;
//   - executions that outlive their connection: workers keep them for a while,
//     connect again soon, late or elsewhere, and present them, ends whose report
//     may have been lost included, and now and then what is not theirs; dispatchers that stop leave them to the next one;
//   - producers whose inserts commit out of order, callers with deadlines who hang up;
//   - clocks that run fast or slow and jump, on every host and in the database.
//
// All of it is one heap of tasks ordered by time and then by order of planning.
//
// # What is checked
//
// At every claim: the row was pending and due, and its dispatcher not declared
// lost. At every end: the attempt was the live one, and success was really had.
// At every start of an execution: the slot supports the type and is not in use,
// and no attempt starts twice or unclaimed. At every answer: it is the request's
// only one. At every few steps: actor.Core.Check. At samples: no slot stays free
// beside a job it could do, nobody spins, every running row of a lost dispatcher
// is found by its notes; and no placement passes a job that waited longer than
// the overtaking window. An execution is adopted only for the worker that began
// it, from the session in which it began, under the live attempt; it is not run
// anew while its dispatcher knows its worker to go on with it; what was handed
// over is left alone for the whole time to resume, and counts no crash; who is
// told to stop waits for the grace. In the end, when all trouble is over: every job is
// final, every request answered, every slot free and none missing.
//
// What these checks are worth is shown by worlds in which one safeguard is
// missing (see Break): each of them must be noticed.
//
// # Replaying
//
// A failure prints the command that runs the same world again:
//
//	go test ./internal/sim -run TestSeed -seed=N -steps=M -v
//
// Seeds that found something are kept in testdata/seeds.txt.
package sim
