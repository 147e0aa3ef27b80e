// Package client is for programs that give dispatcherd work.
//
// A batch producer inserts rows, inside its own transaction if it likes, with
// [Insert], [InsertTx], [InsertSQLTx] and [InsertMany]; that needs Postgres and
// no dispatcher. A program with somebody waiting asks a dispatcher through its
// API with a [Client]: [Client.Do] waits for the result, [Client.Stream] shows
// what happens meanwhile, [Client.Cancel] ends a job. Ending the context of a
// call hangs up, which cancels.
//
// [MapLimit] runs a function over many items, so many at a time: the way to
// wait for many requests without flooding the dispatcher.
//
// What the dispatcher refuses, and what a job failed with, is a [Problem].
package client
