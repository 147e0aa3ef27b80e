package api

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"
)

// surviveOn is deferred by handlers. It reports a panic to the observer. Then it panics
// with http.ErrAbortHandler, so that net/http closes the connection without a log entry.
// The log entry would contain the value of the original panic.
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

// panicked describes a panic. It omits the value, which may contain payload, unless
// the value is an error of the runtime.
func panicked(v any) error {
	what := fmt.Sprintf("a %T", v)
	if own, ok := v.(runtime.Error); ok {
		what = own.Error()
	}
	return fmt.Errorf("panic: %s\n%s", what, debug.Stack())
}
