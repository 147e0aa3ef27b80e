// Package actor decides which job runs on which slot.
//
// # Shape
//
//	events ──► Core.Step ──► effects
//
// Core is a pure state machine. Its input is an event and the instant of the event. Its
// output is a list of effects: statements to send to Postgres, frames to send to workers,
// answers for callers. Core starts no goroutine, reads no clock, does no I/O, takes no
// lock and logs nothing. No result depends on map order. So the same events give the same
// effects, byte for byte.
//
// Actor is the shell around Core: one goroutine, one select loop, typed channels
// for events. Actor owns the Core and performs its effects. The loop never waits
// for Postgres or for a socket (article 1, "Actor Model").
//
// # What Core knows
//
//   - the slot index: which slots exist, which are free, what they support;
//   - per type, the heads of its lanes: candidates read ahead from Postgres in
//     lane order, and on-demand requests in order of arrival;
//   - the jobs in hand: reserved (their claim is in flight), running, or
//     recording (their end is not yet recorded in Postgres).
//
// A slot is free, reserved, or busy. A session may end while a claim for one of its slots
// is in flight. If the claim then wins the row, the job has no slot, and the core
// releases the row at once. See jobstate.go for the states of a job in hand.
//
// # A decision
//
// Between two steps no free slot is compatible with a waiting job. Within a step, only
// two things can violate this rule: the slots that the step freed and the jobs that it
// added. The step collects the types of these slots and jobs. It computes the score of
// the best head of each type at the instant of the step. Then it repeatedly places the
// head with the highest score on the most specialised free slot, until the rule holds
// again. All scores of a step are computed at one instant, so it does not matter that
// scores grow at different rates. Inside a lane the order never changes, so nothing is
// sorted again.
//
// # Exactness
//
// A lane may have no candidates although Postgres contains more of its rows. Comparisons
// then use the upper bound of the lane: the key of the last row that was read, which is
// the best key that the next row can have. If an upper bound is the best head, the round
// waits for the fetch, so that no job with a lower score passes the unread row.
//
// A round waits for Config.Patience at most. Afterwards, until the fetch is answered,
// known heads may pass the unread rows. Let j be an unread row of a lane without
// candidates, and let b be the first key that j can have. Then j arrived no earlier than
// b, and only jobs that arrived before b + W may pass. So no job that arrived W or more
// after j passes j, and the overtaking window holds however slow a fetch is. Jobs that
// arrived later wait until the fetch is answered or fails. The statement timeout bounds
// this wait. A failed fetch opens the circuit breaker. While the circuit breaker is open,
// the known heads do not wait.
//
// The order in which claims are answered does not matter. A job is placed before
// its claim is sent, and the order of decisions is the order of placements.
package actor
