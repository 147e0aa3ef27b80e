// Package ondemand implements on-demand requests below the two interfaces of callers:
// HTTP and frames, both of package httpapi. It validates options,
// submits requests to the dispatcher, and implements idempotency keys, coalescing,
// durable requests, waiting and the answers that are kept.
//
// # Two kinds of requests
//
// A request that lives in memory and has one caller goes directly to the dispatcher
// ([Service.Submit]): the [Caller] gets its events and its answer. A request that has a
// key, is durable, or whose answer is fetched later ([Request.Shared]) is a [Shared]
// request: one execution with a bounded list of events. Any number of callers follow the
// events ([Service.Begin], [Follower]). A shared request is cancelled when its last
// caller disconnects. If a caller fetches the answer later, a follower of this package
// waits in place of the caller, so that the request continues.
//
// # Expiry
//
// The core decides the deadline and the capacity wait of each request in memory that
// has one caller. A row has no deadline in the core, and each caller of a shared
// request has its own deadline. expiry.go enforces these deadlines. capacity_wait.go
// decides how long the callers of a shared request wait while no slot supports the
// type.
package ondemand
