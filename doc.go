// Package dispatcherd holds the names and values that every other package
// shares: identities, states, and the plain structs that travel between the
// pure core and the shells around it. It imports nothing of this module and
// does nothing.
//
// # Words
//
// A job needs one type. A slot executes one job at a time and supports a set
// of types; a worker is a process with slots, and a session is one connection
// of a worker. A dispatcher is one running daemon. A candidate is a pending
// job that was read from Postgres; a claim is the UPDATE that takes it, and
// the attempt is the fencing number that the claim hands out. A placement is
// the decision to run one job on one slot. Code, SQL, command line, documents
// and metrics use these words and no synonyms.
//
// # Life of a job
//
//	pending → running → done | failed | cancelled
//	            └─ a failed attempt with tries left: pending again, run_at later
//
// The row in Postgres is the only truth. The slot index, the cached
// candidates and NOTIFY are hints that may vanish at any moment.
//
// # Lanes
//
// Queued jobs all age at the same rate, so inside one (type, priority) the
// order of score is the order of (run_at, id) under every choice of weights.
// That pair is a lane. Candidates are fetched lane by lane in that order, and
// the core compares lane heads; therefore the fetch is the exact top k of each
// type, stays exact when the operator changes the weights, and no weight ever
// appears in SQL.
package dispatcherd
