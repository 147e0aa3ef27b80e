// Package trial contains the experiments. Each states what is broken, how often,
// and what must hold afterwards, and prints one line. In addition every trial must
// lose no job, create no job, accept no stale report, violate no affinity, leak no
// slot and cause no deadlock; see package judge.
package trial
