// Package claim executes all statements of a dispatcher in Postgres. It fetches
// candidates, claims them, records how attempts ended, renews the dispatcher's lease and
// listens for notifications. The package makes no decisions: the core passes each request
// as a plain value, for example the ids to claim. File statements.go contains the
// statements that fetch, claim, finish and adopt jobs.
//
// # Transitions
//
// Every transition of a row is one statement with its full predicate. The store
// checks which rows the statement changed:
//
//	claim   pending → running   status = 'pending' AND run_at <= now(); the dispatcher must hold its
//	                            lease, and the claim must name its epoch; attempt + 1;
//	                            under contention in id order with SKIP LOCKED
//	finish  running → …         id, attempt, dispatcher and status = 'running' must all match
//
// A finish that matches no row is stale: another dispatcher owns the row, or the
// attempt has ended. A stale finish changes nothing.
//
// # Verdicts
//
// A statement has one of three verdicts:
//
//   - OK: the statement was executed.
//   - Refused: the statement was certainly not executed. It was never sent, or the
//     server answered with an ERROR, which rolls the statement back.
//   - Unknown: the statement may have been executed. The connection broke after the
//     statement was sent, or the server sent a FATAL message.
//
// The caller sends a finish with an unknown outcome again, with Again set. Fencing
// makes the finish idempotent.
//
// [Store.Resolve] resolves a claim with an unknown outcome. The row of each dispatcher
// has an epoch, and every claim names it. Resolve first raises the epoch, under a lock
// that waits for claims in flight. From then on a delayed copy of the claim takes
// nothing. Then Resolve reads the rows with the token of the claim. Other claims that
// name the old epoch and arrive later take nothing either. Their result is Refused with
// OldEpoch, which is not a failure of Postgres.
//
// # Connections
//
// A [Store] has separate connections for each kind of statement (fetch, claim,
// finish, lease, …), so that a slow finish never delays a heartbeat. It has
// Config.Claims connections for claims, Config.Finishes for finishes, Config.Spawns for
// children, two for loads of payloads, and one for each other kind. A [Listener] has one more. A call waits for a free connection of
// its kind. The client and the server both limit the duration of every statement. The
// store drops a broken connection. The next call connects again, but not
// within 50 ms (probePause) of an attempt that failed: such calls are Refused at once.
//
// # Lost dispatchers
//
// Running rows have no index of their own, because an index on status would make every
// claim write to all indexes. Instead each claim also records its ids in
// dispatcherd.claims in the same transaction. The caller observes which other dispatchers
// sent no heartbeat for their lease. The next heartbeat declares these dispatchers lost.
// While a dispatcher is lost, the caller calls [Store.Release] after each heartbeat. It
// releases the rows that the claims of lost dispatchers name. [Store.Sweep] deletes lost dispatchers.
// Before that, Sweep reads the whole table once, because only the rows of jobs are
// authoritative. [Store.DeclareLost] ends a lease before it expires.
//
// A row that names this dispatcher, although the dispatcher does not run it, is unheld. A
// heartbeat releases such rows after a loss of the connection, and once per minute.
package claim
