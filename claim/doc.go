// Package claim executes all statements of a dispatcher in Postgres: it fetches
// candidates, claims them, records how attempts ended, renews the dispatcher's lease
// and listens for notifications. It decides nothing; what to claim comes from the
// core as plain values. File statements.go lists the statements.
//
// # Transitions
//
// Every transition is one statement with its full predicate, and the store checks
// which rows it changed:
//
//	claim   pending → running   status = 'pending' AND run_at <= now(), own lease and epoch hold;
//	                            attempt + 1; in id order, with SKIP LOCKED under contention
//	finish  running → …         id, attempt, dispatcher and status = 'running' must all match
//
// A finish that matches no row is stale: another dispatcher owns the row, or the
// attempt has ended. Nothing changes.
//
// # Verdicts
//
// A statement has one of three verdicts. OK: it was executed. Refused: it was
// certainly not executed, because it was never sent, or because the server answered
// with an ERROR, which rolls it back. Unknown: it may have been executed, because
// the connection broke after the statement was sent, or a FATAL message came.
//
// A finish with an unknown outcome is sent again with Again set; fencing makes it
// idempotent. A claim with an unknown outcome is resolved. First the dispatcher's
// epoch is raised, under a lock that waits for claims in flight. A delayed copy of
// the claim then takes nothing. Then the rows are read by their token. Other claims
// that were sent with the old epoch and arrive later take nothing either. They are
// Refused with OldEpoch, which is not a failure of Postgres.
//
// # Connections
//
// A [Store] holds connections for each kind of work (fetch, claim, finish, lease, …)
// and a [Listener] one more, so that a slow finish never delays a heartbeat. Claims
// and finishes have Config.Claims and Config.Finishes connections, other kinds one.
// Calls of one kind wait for a free connection. Every statement has a deadline on both sides. A
// broken connection is dropped, and the next call connects again, no sooner than its
// backoff allows. While Postgres is down, calls are Refused at that pace, in constant
// memory.
//
// # Lost dispatchers
//
// Running rows have no index of their own, because an index on status would make
// every claim write to all indexes. Instead each claim also records its ids in
// dispatcherd.claims in the same transaction. A heartbeat that finds an expired lease
// marks that dispatcher lost, which waits for its claims in flight, and releases the
// rows that its claims name. [Store.Sweep] then reads the whole table once before it
// deletes the dispatcher, because only the job's row is authoritative.
// [Store.DeclareLost] does not wait for the lease.
package claim
