// Package fault simulates a bad network. Its proxy between a client and a server,
// over TCP or a Unix socket, delays, holds, cuts and resets connections on command.
// On a Postgres connection it can also lose the answers of named statements.
package fault
