package api

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"time"
)

// Serve answers on a listener until ctx is done: responses under way then have
// a moment to end. The error is that of the listener; nil when ctx ended it.
func (h *Handler) Serve(ctx context.Context, l net.Listener, handler http.Handler, errorLog *log.Logger) error {
	return h.serve(ctx, callerListener{l, h.obs}, nil, h.newConnections(), handler, errorLog)
}

// ServeOpen is Serve for listeners on which handler lets everybody in, without a
// token and from any Host: the plainest on-demand requests are answered past it,
// and past net/http, in less time (see plainConn).
func (h *Handler) ServeOpen(ctx context.Context, l net.Listener, handler http.Handler, errorLog *log.Logger) error {
	connections := h.newConnections()
	f := newFront(h, l, connections)
	return h.serve(ctx, f, f, connections, handler, errorLog)
}

// serve has net/http serve l; plain, if not nil, is stopped with it.
func (h *Handler) serve(ctx context.Context, l net.Listener, plain *front, connections *connections, handler http.Handler, errorLog *log.Logger) error {
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.serving.Add(1)
			defer h.serving.Done()
			handler.ServeHTTP(w, r)
		}),
		// net/http would answer it before any guard is asked; see ServeHTTP.
		DisableGeneralOptionsHandler: true,

		ReadHeaderTimeout: h.cfg.HeaderTimeout,
		ReadTimeout:       h.cfg.BodyTimeout + h.cfg.HeaderTimeout,
		WriteTimeout:      h.cfg.WriteTimeout,
		IdleTimeout:       h.cfg.IdleTimeout,
		MaxHeaderBytes:    h.cfg.MaxHeader,
		ErrorLog:          errorLog,
		ConnState:         connections.changed,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, bareConn(c))
		},
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		if srv.Shutdown(last) != nil {
			_ = srv.Close() // whoever is still connected has had his time
		}
	})
	err := srv.Serve(l)
	if plain != nil {
		plain.stop()
	}
	if !stop() {
		<-ended
	}
	h.serving.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

type connKey struct{}

// ConnOf returns the connection that a request came over, so that a handler can
// ask who is at its other end; nil outside of Serve.
func ConnOf(r *http.Request) net.Conn {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return c
}

// lastWords is how long responses may take when the server stops.
const lastWords = 500 * time.Millisecond
