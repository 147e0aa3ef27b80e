// Package trial holds the experiments: what is broken, how often, and what
// must be true afterwards. Each prints one line. Beside what its own line
// says, every trial must lose nothing, invent nothing, accept no stale word,
// break no affinity, leak no slot and deadlock never; see package judge.
package trial
