// Package history holds the result of an experiment: three independent logs,
// and the recorded faults.
//
//   - Producers: which batches of jobs were begun, committed or rolled back, and
//     which were not answered ([Batch]).
//   - Workers: when each execution started and ended, on which slot, and what the
//     slot had offered ([Process], [Execution]). A worker appends a line with one
//     write before it acts on it, so SIGKILL loses no entry.
//   - Postgres: every change of a job's status or attempt, written by triggers
//     in the transaction that made the change ([Change]), and the final rows
//     ([Row]).
//
// Times are nanoseconds of the machine's monotonic clock, which all processes share.
// Postgres has only the wall clock. The laboratory converts these times, exact to [Slack].
package history
