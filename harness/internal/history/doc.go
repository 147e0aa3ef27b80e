// Package history holds the result of an experiment: three logs that know
// nothing of each other, and the notes of the one who made the trouble.
//
//   - Producers: which batches of jobs were begun, committed, rolled back, or
//     sent off without an answer ([Batch]).
//   - Workers: when each execution started and ended, on which slot, and what the
//     slot had offered ([Process], [Execution]). A worker appends a line before
//     it acts on it, with one write, so kill -9 loses nothing that it did.
//   - Postgres: every change of a job's status or attempt, written by triggers
//     in the transaction that made the change ([Change]), and the rows that are
//     there in the end ([Row]).
//
// Times are nanoseconds of the machine's monotonic clock, which all processes
// share. Postgres only knows the wall clock; its times are moved over and
// exact to [Slack].
package history
