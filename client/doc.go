// Package client is for programs that give dispatcherd work.
//
// A batch producer inserts rows, inside its own transaction if it likes, with
// [Insert], [InsertTx], [InsertSQLTx] and [InsertMany]; that needs Postgres and
// no dispatcher. An interactive program sends requests to a dispatcher with a
// [Client]: [Client.Do] waits for the result, [Client.Stream] also delivers the
// events, [Client.Cancel] cancels a job. Cancelling the context of a call cancels
// its request. On a Unix socket all requests of a Client share one connection and
// are sent as frames; on TCP they are sent as HTTP.
//
// [MapLimit] runs a function over many items, so many at a time: the way to
// wait for many requests without flooding the dispatcher.
//
// What the dispatcher refuses, and what a job failed with, is a [Problem].
package client
