// Package rig builds what every benchmark runs on: one private Postgres with
// the same settings for everybody, the daemon and its workers built from this
// checkout as processes of their own, and clocks for the processors' time.
//
// Nothing outlives a [Rig]: its processes die with the caller, by kill -9
// included (on Linux), and its data lie below a temporary directory.
package rig
