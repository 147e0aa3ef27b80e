// Package dispatcherd contains the names and values that all other packages
// share: identities, states, bounds, and the rules for names. It imports no
// package of this module.
//
// # Words
//
// A job needs one type. A slot runs one job at a time and supports a set of
// types. A worker is a process with slots. A session is one connection of a
// worker. A dispatcher is one running daemon. A candidate is a pending row
// that was fetched. A claim is the UPDATE that makes pending rows running.
// The attempt is the fencing number that the claim assigns. A placement is
// the decision to run one job on one slot. Code, SQL, command line, documents
// and metrics use these words and no synonyms (docs/reference/glossary.md).
//
// # Articles
//
// The project implements what five published articles describe. Comments and
// documents cite them by number, with the words that the article uses:
//
//  1. Affinity scheduler: jobs, workers with different abilities, the score,
//     the most specialised slot, several dispatchers on one database.
//  2. Distributed task scheduler: leadership, heartbeats, cron, concurrency
//     limits across hosts, tasks for all workers.
//  3. Semaphore and schedule in memory: an interval or delay that a reader
//     plans in memory, so that the database is hardly read.
//  4. Concurrency patterns: semaphore, lock for readers and writers, barrier,
//     structured concurrency, cancellation.
//  5. Weighted semaphore: several units at once, served in order of arrival.
//
// # Life of a job
//
//	waiting → pending → running → done | failed | cancelled
//	                      └─ a failed attempt with tries left: pending again, run_at later
//
// A job waits only if it depends on other jobs. Only the row in Postgres
// states which dispatcher runs a job. The slot index, the cached candidates
// and notifications are hints and may be lost at any moment.
//
// # Lanes
//
// The pending jobs of one type, priority and duration class are a lane. All
// queued jobs age at the same rate. So within a lane the order of the score is
// the order of (run_at, id), whatever the weights are. A fetch reads candidates
// lane by lane in that order, and the core compares the heads of lanes.
// Therefore a fetch returns exactly the first rows of each lane. No weight is in
// SQL, so this holds for all weights that the operator sets.
package dispatcherd
