// Package dispatcherd contains the names and values that all other packages
// share: identities, states, and the structs that the pure core and the
// shells exchange. It imports no package of this module and has no behaviour.
//
// # Words
//
// A job needs one type. A slot runs one job at a time and supports a set of
// types. A worker is a process with slots. A session is one connection of a
// worker. A dispatcher is one running daemon. A candidate is a pending row
// that was fetched. A claim is the UPDATE that makes pending rows running.
// The attempt is the fencing number that the claim assigns. A placement is
// the decision to run one job on one slot. Code, SQL, command line, documents
// and metrics use these words and no synonyms (docs/glossary.md).
//
// # Life of a job
//
//	pending → running → done | failed | cancelled
//	            └─ a failed attempt with tries left: pending again, run_at later
//
// Only the row in Postgres states which dispatcher runs a job. The slot index,
// the cached candidates and NOTIFY are hints and may be lost at any moment.
//
// # Lanes
//
// All queued jobs age at the same rate. So within one (type, priority) the order of the
// score is the order of (run_at, id) under all weights. The pending jobs of one (type,
// priority) are a lane. A fetch reads candidates lane by lane in that order, and the core
// compares the heads of lanes. Therefore a fetch returns exactly the first rows of each
// lane. No weight is in SQL, so this holds for all weights that the operator sets.
package dispatcherd
