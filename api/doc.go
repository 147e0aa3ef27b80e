// Package api serves callers and operators: on-demand requests, jobs, and the state of
// the dispatcher. It knows HTTP and frames, and neither the loop nor Postgres; both are
// behind [Backend].
//
// # Two interfaces
//
// On a Unix socket the first byte of a connection decides (listener.go): { begins a
// frame (frames.go; docs/protocol.md, section 11), anything else is HTTP, which net/http
// serves. On TCP there is only HTTP. Both are thin: package ondemand implements
// on-demand requests below them.
//
// # Errors
//
// HTTP sends every error as application/problem+json (RFC 9457), frames send its name
// as a code; package problem lists the names and docs/api.md describes them. Every
// limit has a field in [Config] and is visible in [Handler.Gauges] or in calls of the
// [Observer].
package api
