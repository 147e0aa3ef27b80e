// Package e2e holds the end-to-end tests: the daemon with a real Postgres, real
// sockets and real worker processes. The daemon runs in the process of the test
// where a test needs only what a client can see of it, and as a process where a
// test kills it or checks its exit code and its output.
//
// All tests share one Postgres server and copy their database from one template.
package e2e
