// Package trial contains the experiments. Each experiment states which faults it injects,
// how often, and what must hold afterwards. It prints one line. Every trial must also
// lose no job, create no job, accept no stale report, violate no affinity, leak no slot
// and cause no deadlock; see package judge.
package trial
