// Package rig builds the environment of all experiments and benchmarks: a private Postgres
// that can be stopped in every way, the daemon and the workers of this checkout or of
// another commit as separate processes, loads, waits, and clocks for the processor time.
// Package stage adds what experiments with faults need: proxies between the processes, and
// records of what they did.
//
// Nothing outlives a [Rig]: its processes end with the caller, also after kill -9 (on Linux),
// and its files are below a temporary folder.
package rig
