// Package stage sets up what an experiment breaks: a private Postgres that can
// be stopped in every way, daemons and workers as processes of their own that
// come back whenever they end, producers that know what they committed, and
// fault proxies between all of them.
//
// Nothing outlives a [Stage]: its processes die with the caller, by kill -9
// included (on Linux), and its files lie below a temporary directory.
package stage
