// Package fault is a bad network: a proxy between a client and a server, over
// TCP or a Unix socket, that delays, holds, cuts, resets and forgets on
// command, and that can lose the answer to exactly those statements of a
// Postgres connection whose effect must not be guessed.
package fault
