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
// The bound of a type is a key like the others: each job needs one of its type, from its admission to its start.
//
// Jobs with equal keys, type and priority form a class. Their needs are equal, so only the job of a class with
// the lowest rank matters. A Book keeps the first jobs of each class in memory. Rank is the order of
// the score without its rarity term: it is the same for all keys.
//
// The holder of a permit is the row itself: it contains the fence. So a new Book is made from the table, by Hold,
// Returned, Starts and Arrived, before the first decision.
//
// # Rules
//
//   - A job that is not due blocks no other. Nor does one whose cost exceeds a limit, or whose type no slot supports.
//   - A class waits at the first of its keys that has no room for it, and at the bound of its type if all its
//     keys have room. There, jobs are admitted in the order of their ranks: while the first one does not
//     fit, none behind it is admitted.
//   - A job that is blocked at another key, or by the bound of its type, does not block this key, until it is older than
//     the patience. Then its keys keep room for its cost. Each key keeps room for one such job at a time, the one with
//     the lowest rank. Two rules keep keys from being unused for long: a job that waits for a window keeps room only
//     in windows, and of the jobs that wait for the bound of a type, only the first keeps room.
//   - A limit with scope Dispatcher counts the permits of each dispatcher separately, but the key has one queue. A job
//     with such keys needs a dispatcher with slots of its type that has room at all of them; they refuse it
//     together, and keep room for it at each dispatcher. It gets its permits at a dispatcher that is not busy, at the one with
//     the lowest cost. A row whose dispatcher is not known (the scope has changed) counts at each.
//   - A job that waits for its retry and has a key with OnRetry Wait ranks before all ordinary jobs. It waits at the first
//     such key, also before it is due and while no slot supports its type, and no job is admitted at its keys with
//     OnRetry Wait. Its other keys keep room for it when it is due.
//   - When a limit is lowered or paused, admitted jobs that have not started lose their permits, those with the last ranks first,
//     until the others are within the limit. They wait as before. Jobs that run keep their permits.
//   - An admitted job with a limit for each dispatcher that has found no slot for a second loses its permits if another dispatcher
//     has room for it and is not busy too, or has fewer permits at its keys. A dispatcher is busy for ten seconds after a job of the
//     type has found no slot there for a second, unless one starts.
//   - An admitted job that has found no slot for a second loses its permits if a job of
//     another type could use them. Then other jobs pass it for the patience. After that, its
//     permits are kept for it for the patience, and so on.
//
// # No job starves
//
// Assume that running jobs end, and that rows of each supported type start. Let j be the due job with the lowest rank of all. A full
// book never forgets its class, which is the first of its queue and of all classes, and the next read of all heads adds it, because
// it ranks before each class that the book may forget. The jobs before it are finite,
// because a later job ranks behind it after at most the time that ten units of priority are worth. At the key
// where j waits, it is the first, so that nothing is admitted there until j fits: it waits for holders only. It
// goes on to another key, or to the bound of its type, only when that key has room. Once j is older than the
// patience, the keys that it leaves keep room for it: at first its windows, and all its keys when they have
// room, because j does not wait at a window then. At the bound of its type, j is the first. So each move leaves
// one thing fewer to wait for, and the next row of its type that starts makes j admitted. With the scope
// Dispatcher, the same holds for each dispatcher.
//
// # Bounds
//
// The admitted rows of a type that have not started are at most Type.Most, unless it is lowered. A Book knows
// at most Config.MaxClasses classes, and beside them those of jobs that keep their precedence, each of which
// had a permit before. A full Book keeps the classes that may run first. A class that takes part replaces one that does not: whose
// job is not due, exceeds a limit, or has an unsupported type; otherwise the last ones of the longest queue, so that jobs of other
// keys have room; or, if all queues are short, those with the last ranks. The caller finds them again by Head. Of each class it
// knows 64 jobs, and those that the last Refill added. All heaps contain classes, permits or their keys. A key
// without classes and permits is kept while its window counts starts; a window has at most 258 parts. A class
// with one key takes about 600 bytes. An event costs O(log n) for each key of the job. SetLimits and SetTypes
// file again the classes whose limits change or whose type becomes supported or unsupported, not those of a
// type of which Most changes.
package permits
