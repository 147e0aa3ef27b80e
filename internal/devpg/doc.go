// Package devpg runs a private Postgres server from the binaries that the
// machine already has: no Docker, no port, no password, no system service.
// It serves `dispatcherd dev`, the demo and the tests.
//
// # Guarantees
//
//   - The server listens on a Unix socket inside a directory that only its
//     owner can enter, and on nothing else.
//   - Postgres refuses to run as root, so a root caller's server runs as the
//     owner of the existing data, else as user postgres, else as the user nobody.
//   - No orphan: when the caller dies, by kill -9 included, the server shuts
//     down. Linux does this with a parent-death signal; on other systems a shell waits
//     at the end of a pipe that only the caller holds open.
//   - One server a directory: a second Start on it gets an [InUseError] with the
//     URL of the first, and changes nothing. It does not attach by itself,
//     because the first caller's Stop would then pull the server away from it.
//   - A server that is still going down after its caller was killed is waited
//     for; a postmaster.pid that names no postmaster of this data is removed.
//   - A half-finished initdb is never mistaken for data.
//
// Nothing is ever downloaded: without binaries [Find] returns an error with the
// one line that installs them.
//
// # Layout of a directory
//
//	data/      PGDATA
//	data.new/  an initdb that has not finished
//	run/       the socket, unless the path would exceed what the kernel takes
//	lock       flock-ed while a server is in use; holds the caller's pid
package devpg
