// Package rig builds the environment of all benchmarks: one private Postgres with the same
// settings for all systems, the daemon and its workers built from this checkout as separate
// processes, and clocks for the processor time.
//
// Nothing outlives a [Rig]: its processes end with the caller, also after kill -9 (on Linux),
// and its data is below a temporary directory.
package rig
