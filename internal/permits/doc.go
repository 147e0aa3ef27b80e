// Package permits decides which waiting jobs with keys may run. It is pure: it reads no clock,
// does no I/O, and its decisions do not depend on map order.
//
// # Model
//
// A job with keys runs only while it has a permit of each of its keys. The limit of a key states how
// much cost its permits may have at once (a semaphore; capacity 1 is a mutex), and how much cost may start
// within any window (a rate). A job that needs all of a key runs alone on it (a writer beside
// readers of cost 1). A job gets all its permits in one step or none, so no job waits while it has a
// permit, and no deadlock can occur.
//
// Jobs with equal keys and type form a class. Their needs are equal, so only the job of a class with
// the lowest rank matters. A Book keeps the first jobs of each class in memory. Rank is the order of
// the score without its rarity term: it is the same for all keys and never changes.
//
// # Rules
//
//   - A class waits at the first of its keys that has no room for it. There, jobs are admitted
//     in the order of their ranks: while the first one does not fit, none behind it is admitted.
//   - A job that is blocked at another key does not block this one, until it is older than the
//     patience. Then the key keeps the cost of the job free for it. Each key keeps room for one such job at a
//     time, the one with the lowest rank. So jobs with several keys do not starve: the oldest of
//     all has its room kept at each of its keys.
//   - A job whose cost exceeds the limit, or whose type no slot supports, blocks no other job.
//   - An admitted job whose type has no free slot keeps its permits for a second if a job of
//     another type could use them. Then other jobs pass it for the patience. After that, its
//     permits are kept for it for the patience, and so on.
//
// The holder of a permit is the row itself: the claim writes its fence. So a new Book is made from the table.
package permits
