// Package httpapi serves callers and operators: on-demand requests, jobs, and the state of the
// dispatcher. It implements HTTP and frames. It uses the loop and Postgres only through
// [Backend].
//
// # Two interfaces
//
// Without TLS the first byte of a connection decides (listener.go). An opening brace
// begins a frame (frames.go; docs/reference/protocol.md, section 11). Any other byte begins HTTP,
// which net/http serves. With TLS the negotiated protocol decides. Both interfaces only translate;
// package ondemand implements on-demand requests.
//
// # One description of each call
//
// Each call is one [rest.Route]: its path, its Go types of parameters, body and answers, its problems, and its handler. The handler is
// bound to these types, so the description cannot differ from it. openapi.json is generated from the routes and from the comments of
// the types, by a test, and is embedded. A generator at run time was rejected: it would need the comments as text in the program. A
// library such as huma was rejected: it replaces the handlers of streams and uploads, and takes descriptions from tags,
// so that each field would be described twice.
//
// # One way to list
//
// SDKs, the command line and the dashboard read tables by the same rules (docs/reference/api.md, "Lists"). Each list answers items and
// next_cursor, and takes limit, cursor and filters whose names have the same meaning everywhere. The cursor is an opaque key of the
// last element: a page costs the same wherever it begins, and elements that are inserted meanwhile neither repeat nor hide others.
// Page numbers were rejected, because both do not hold for them. Visible keys (after=NAME, before=ID) were rejected, because each list
// had its own name and type for them, and a second order of a list would break its callers.
//
// A change of many jobs takes the filter of the list, and expect, the number of jobs that a dry run has counted. Another
// number is a problem of its own type, which contains the number. An operation that changes whatever the filter selects now
// was rejected: a misspelt filter would cancel jobs that no one has seen. A token of the preview was rejected: it would be
// state that a dispatcher keeps between two calls, and dispatchers share none.
//
// # Errors
//
// HTTP sends every error as application/problem+json (RFC 9457). Frames send the name of
// the error as a code. Package rest lists the names and docs/reference/api.md describes them.
// Every limit has a field in [Config]. [Handler.Gauges] or the [Observer] shows the use
// of each limit.
package httpapi
