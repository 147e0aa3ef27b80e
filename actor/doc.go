// Package actor decides which job runs on which slot.
//
// # Shape
//
//	events ──► Core.Step ──► effects
//
// Core is a pure state machine. An event and the instant it happened go in,
// effects come out: statements to send to Postgres, frames to send to workers,
// answers for callers. Core starts no goroutine, reads no clock, does no I/O,
// takes no lock, logs nothing, and nothing it does depends on map order: the
// same events give the same effects, byte for byte.
//
// Actor is the thin shell: one goroutine, one select loop, one typed channel
// per kind of event. It owns the Core and performs its effects without ever
// waiting for Postgres or for a socket (article 1, "Actor Model").
//
// # What Core knows
//
//   - the slot index: which slots exist, which are free, what they support;
//   - per type, the heads of its lanes: candidates read ahead from Postgres in
//     lane order, and on-demand requests in order of arrival;
//   - the jobs in its hands: reserved (their claim is under way), running, or
//     finishing (their end is on its way to Postgres).
//
// A slot is free, reserved, or busy. A session that ends while a claim for its
// slot is in flight gives a won job without a slot: its row is released at once.
// See package jobstate for the states of a job in hand.
//
// # A decision
//
// Between two steps no free slot is compatible with a waiting job. A step can
// only break that for the types of the slots it freed and of the jobs it
// brought; those types are collected, the best head of each is scored at the
// instant of the step, and the best-scoring head goes to the most specialised
// free slot until the rule holds again. All scores of a step are taken at one
// instant, so differing slopes need no care, and inside a lane order never
// changes, so nothing is ever re-sorted.
//
// # Exactness
//
// A lane without candidates for which Postgres holds more rows is compared by its
// upper bound: the position of the last row read, the best that the next row can
// have. If an upper bound is the best head, the round waits for the fetch instead
// of letting a lesser job pass.
//
// A round waits for Config.Patience at most. Afterwards, until the fetch is answered,
// the heads at hand pass the unread rows. Let b be the first key that an unread row j
// of a lane without candidates can have. Then j arrived no earlier than b, and a job
// that passes arrived before b + W. So no job passes that arrived W or more after j,
// and the overtaking window holds however slow a fetch is. While Postgres answers no
// fetch, the circuit breaker is open, and the heads at hand do not wait.
//
// The order in which claims are answered does not matter: a job is placed before its
// claim is sent, and the order holds among placements.
package actor
