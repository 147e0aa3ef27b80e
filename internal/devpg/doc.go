// Package devpg runs a private Postgres server with the programs that the machine already has,
// without Docker, port, password or system service. "dispatcherd dev", "trace replay" and the
// tests use it.
//
// # Guarantees
//
//   - The server listens only on a Unix socket, in a directory that only its owner can enter.
//   - Postgres refuses to run as root. For a root caller, the server runs as the owner of the
//     existing data, else as user postgres, else as user nobody.
//   - A root caller opens no file that leads out of the directory, because the user of the server may replace each file in it by a link.
//   - When the caller ends, also by kill -9, the server shuts down, and its temporary directories are removed.
//   - One server per directory: a second Start returns an [InUseError] with the URL of the
//     first, and changes nothing. It does not attach to the first, because the server ends
//     with the first caller.
//   - Start waits for a server that still shuts down because its caller was killed. It removes
//     a postmaster.pid that names no postmaster of this data.
//   - The result of an interrupted initdb is never used as data.
//
// Nothing is downloaded: without programs Start returns an error that says how to install them.
//
// # Layout of a directory
//
//	data/        PGDATA
//	data.new-N/  the initdb of process N, which has not finished
//	run/         the socket, unless its path would be too long for the kernel
//	lock         locked (flock) while a server is in use; contains the pid of the caller
package devpg
