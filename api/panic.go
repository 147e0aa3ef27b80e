package api

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"
)

// survive turns a panic of the reader or the writer into the end of this one
// connection, as net/http does; deferred in both. The request under way counts
// as answered with 500, which nobody reads.
func (c *plainConn) survive() {
	v := recover()
	if v == nil {
		return
	}
	took := time.Duration(0)
	if !c.broken.Swap(true) && c.turn != nil {
		took = time.Since(c.began)
	}
	_ = c.conn.Close() // tells the other one
	c.h.obs.Failed(plainRoute, panicked(v))
	c.h.obs.Responded(plainRoute, http.StatusInternalServerError, took)
}

// surviveOn reports a panic of a handler, and has net/http end the connection without
// a log of its own, which would hold the panic's value; deferred.
func (h *Handler) surviveOn(route string, began time.Time) {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler { //nolint:errorlint // a panic's value, which nobody wraps
		h.obs.Failed(route, panicked(v))
		h.obs.Responded(route, http.StatusInternalServerError, time.Since(began))
	}
	panic(http.ErrAbortHandler)
}

// panicked describes a panic without its value, which may hold what is nobody's
// business, unless the runtime made it.
func panicked(v any) error {
	what := fmt.Sprintf("a %T", v)
	if own, ok := v.(runtime.Error); ok {
		what = own.Error()
	}
	return fmt.Errorf("panic: %s\n%s", what, debug.Stack())
}
