package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// serve answers HTTP requests.
func (h *Handler) serve(ctx context.Context, l net.Listener, connections *connections, handler http.Handler, errorLog *log.Logger) error {
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.serving.Add(1)
			defer h.serving.Done()
			handler.ServeHTTP(w, r)
		}),
		// Otherwise net/http would answer OPTIONS * without a check of the token; see ServeHTTP.
		DisableGeneralOptionsHandler: true,

		ReadHeaderTimeout: h.cfg.HeaderTimeout,
		ReadTimeout:       h.cfg.BodyTimeout + h.cfg.HeaderTimeout,
		WriteTimeout:      h.cfg.WriteTimeout,
		IdleTimeout:       h.cfg.IdleTimeout,
		MaxHeaderBytes:    h.cfg.MaxHeader,
		ErrorLog:          errorLog,
		ConnState:         connections.changed,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return quota.WithUser(context.WithValue(ctx, connKey{}, c), workerproto.PeerOf(c).User())
		},
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close() // closes the connections that are left
		}
	})
	err := srv.Serve(l)
	if !stop() {
		<-ended
	}
	h.serving.Wait()
	if errors.Is(err, http.ErrServerClosed) ||
		ctx.Err() != nil && errors.Is(err, net.ErrClosed) { // ctx may close the listener before Shutdown
		return nil
	}
	return err
}

// connKey is the key of the *callerConn in the context of a request.
type connKey struct{}

// ConnOf returns the connection of a request, so that a handler can identify the peer. It
// returns nil outside of Serve.
func ConnOf(r *http.Request) net.Conn {
	if c, ok := r.Context().Value(connKey{}).(*callerConn); ok {
		return c.Conn
	}
	return nil
}

// identified counts the connection of a request for the user of the request.
func identified(r *http.Request, user string) {
	if c, ok := r.Context().Value(connKey{}).(*callerConn); ok {
		c.connections.identified(c, user)
	}
}

// shutdownGrace is how long responses in progress may take when the server stops.
const shutdownGrace = 500 * time.Millisecond

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
