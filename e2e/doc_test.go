// Package e2e holds the end-to-end tests: the daemon with a real Postgres, real
// sockets and real worker processes. If a test needs only what a client can
// observe, the daemon runs in the process of the test. If a test kills the
// daemon or checks its exit code or output, the daemon is a separate process.
//
// All tests share one Postgres server and copy their database from one template.
package e2e
