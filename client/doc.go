// Package client is for programs that produce jobs for dispatcherd.
//
// A batch producer inserts rows, inside its own transaction if it likes, with
// [Insert], [InsertTx], [InsertSQLTx] and [InsertMany]; that needs Postgres and
// no dispatcher. An interactive program sends requests to a dispatcher with a
// [Client]: [Client.Do] waits for the result, [Client.Stream] also delivers the
// events, [Client.Cancel] cancels a job. Cancelling the context of a call cancels
// its request. On a Unix socket all requests of a Client share one connection and
// are sent as frames; on TCP they are sent as HTTP.
//
// [MapLimit] runs a function over many items with a limit on concurrent calls. Use it to wait
// for many requests without overloading the dispatcher.
//
// Refusals of the dispatcher and failures of jobs are a [Problem].
package client
