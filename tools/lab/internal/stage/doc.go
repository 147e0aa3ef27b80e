// Package stage starts the processes of an experiment: a private Postgres that can
// be stopped in every way, daemons and workers that are restarted whenever they
// end, producers that record what they committed, and fault proxies between all of
// them.
//
// Nothing outlives a [Stage]. Its processes end with the caller, even after SIGKILL
// (on Linux), and its files are below a temporary directory.
package stage
