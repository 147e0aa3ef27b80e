// Package claim is the door to Postgres: it fetches candidates, claims them,
// writes down how attempts ended, keeps this dispatcher's lease and listens for
// news. It decides nothing; what to claim comes from the core as plain values.
//
// # Transitions
//
// Every transition is one statement with its full predicate, and the rows it
// changed are looked at:
//
//	claim   pending → running   status = 'pending' AND run_at <= now() AND own lease and epoch hold;
//	                            attempt + 1; in id order, and with SKIP LOCKED as soon as rivals are about
//	finish  running → …         id, attempt, dispatcher and status = 'running' must all match
//
// A finish that matches nothing is stale: the row belongs to somebody else by
// now, and nothing changes.
//
// # Verdicts
//
// A statement either was carried out (OK), certainly was not (Refused: it was
// never sent, or the server answered with an ERROR, which rolls it back), or
// may have been (Unknown: the connection broke, or a FATAL message came, after
// it was sent). An unknown finish is sent again with Again set: the fence makes
// it idempotent. An unknown claim is resolved: the dispatcher's epoch is raised
// first, under a lock that waits for claims in flight, so that no copy of the
// statement that is still on its way can take rows later; then the rows are
// read by their token.
//
// # Connections
//
// A [Store] holds one connection for each kind of work (fetch, claim, finish,
// lease) and a [Listener] one more, so that a slow finish never delays a
// heartbeat. Calls of one kind queue behind each other. Every statement has a
// deadline on both sides; a broken connection is dropped and the next call
// connects again, no sooner than its backoff allows. Postgres gone for an hour
// means an hour of Refused answers, paced, in constant memory.
//
// # Lost dispatchers
//
// Running rows have no index of their own, because an index on status would
// make every claim write to all indexes. Instead each claim also leaves its
// ids in dispatcherd.claims in the same transaction. Whoever finds a lease run
// out marks that dispatcher lost, which its claims in flight must let through
// first, and releases the rows its claims name; [Store.Sweep] then reads the
// whole table once before it forgets the dispatcher, because truth is the row.
package claim
