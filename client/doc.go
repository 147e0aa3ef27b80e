// Package client is for programs that produce jobs for dispatcherd.
//
// A batch producer inserts rows with [Insert] and [InsertMany], if needed inside its own
// transaction. Inserts need Postgres, but no
// dispatcher. An interactive program sends requests to a dispatcher with a [Client].
// [Client.Do] waits for the result. [Client.Stream] also delivers the events.
// [Client.Cancel] cancels a job. If the context of a call is cancelled, its request is
// cancelled. On a Unix socket all requests of a Client are frames on one connection. On
// TCP they are HTTP requests.
//
// Package client/concurrency runs many calls with a limit and coordinates goroutines. Use it to wait
// for many requests without overloading the dispatcher.
//
// If the dispatcher rejects a request, or a job fails, the error is a [Problem].
package client
