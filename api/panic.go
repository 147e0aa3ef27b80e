package api

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"
)

// surviveOn reports a panic of a handler, and has net/http end the connection without
// a log of its own, which would hold the panic's value; deferred.
func (h *Handler) surviveOn(route string, began time.Time) {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler { //nolint:errorlint // a panic's value is not wrapped
		h.obs.Failed(route, panicked(v))
		h.obs.Responded(route, http.StatusInternalServerError, time.Since(began))
	}
	panic(http.ErrAbortHandler)
}

// panicked describes a panic. The value is left out, because it may contain payload,
// unless it is an error of the runtime.
func panicked(v any) error {
	what := fmt.Sprintf("a %T", v)
	if own, ok := v.(runtime.Error); ok {
		what = own.Error()
	}
	return fmt.Errorf("panic: %s\n%s", what, debug.Stack())
}
