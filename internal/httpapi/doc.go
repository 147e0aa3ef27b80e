// Package httpapi serves callers and operators: on-demand requests, jobs, and the state of the
// dispatcher. It implements HTTP and frames. It uses the loop and Postgres only through
// [Backend].
//
// # Two interfaces
//
// On a Unix socket the first byte of a connection decides (listener.go). An opening brace
// begins a frame (frames.go; docs/protocol.md, section 11). Any other byte begins HTTP,
// which net/http serves. On TCP there is only HTTP. Both interfaces only translate;
// package ondemand implements on-demand requests.
//
// # Errors
//
// HTTP sends every error as application/problem+json (RFC 9457). Frames send the name of
// the error as a code. Package problem lists the names and docs/api.md describes them.
// Every limit has a field in [Config]. [Handler.Gauges] or the [Observer] shows the use
// of each limit.
package httpapi
