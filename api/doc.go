// Package api is the HTTP face of a dispatcher: on-demand requests whose
// callers wait, jobs, and what an operator wants to see. It knows HTTP and
// nothing of the loop or of Postgres; both are behind [Backend].
//
// # A request
//
//	POST /v1/requests ──► Backend.Submit ──► … ──► Caller.Answered ──► response
//
// The usual request takes the short way: one caller, one channel, no state kept
// beyond its connection. A request that streams, is kept for later, carries an
// Idempotency-Key or a coalesce_key becomes a run: one execution with a bounded
// list of what happened to it, which any number of callers may follow. A run is
// cancelled when its last caller leaves, unless it was submitted to be fetched
// later.
//
// # Every answer
//
// Whatever goes wrong is told as application/problem+json (RFC 9457) whose type
// is one of the constants in problem.go; docs/api.md describes each. Every
// bound has a field in [Config] and shows in [Handler.Gauges] or in what the
// [Observer] is told.
package api
