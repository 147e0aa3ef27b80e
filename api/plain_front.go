package api

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/brief"
)

// front stands between a listener and net/http. Every connection begins as a
// plainConn; with the first request that is not plain it becomes net/http's,
// with all that was read of it, and stays that.
type front struct {
	net.Listener

	h           *Handler
	connections *connections
	accepted    chan handover
	closed      chan struct{}
	closing     sync.Once
	running     sync.WaitGroup // plain connections
	stopping    atomic.Bool
	ended       chan struct{} // closed when nobody is waited for any more

	mu    sync.Mutex
	plain map[net.Conn]struct{}
}

// handover is a connection for net/http, or the listener's error.
type handover struct {
	conn net.Conn
	err  error
}

func newFront(h *Handler, l net.Listener, c *connections) *front {
	f := &front{
		Listener: l, h: h, connections: c, accepted: make(chan handover), closed: make(chan struct{}), ended: make(chan struct{}),
		plain: map[net.Conn]struct{}{},
	}
	go f.accept()
	return f
}

// accept takes connections until the listener is closed. An error is handed on,
// and net/http asks again when it has waited a while; until then nobody takes
// the next error, so this waits too.
func (f *front) accept() {
	for {
		conn, err := f.Listener.Accept()
		if err != nil {
			if !f.handOver(handover{err: err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		f.begin(conn)
	}
}

// begin starts a plain connection, unless the end has begun.
func (f *front) begin(conn net.Conn) {
	f.mu.Lock()
	stopped := f.stopping.Load()
	if !stopped {
		f.plain[conn] = struct{}{}
		f.running.Add(1)
	}
	f.mu.Unlock()
	if stopped {
		_ = conn.Close() // nothing was said
		return
	}
	place := f.connections.begun(conn)
	go func() {
		defer f.running.Done()
		c := &plainConn{front: f, h: f.h, conn: conn, place: place, io: brief.Conn(conn)}
		rest := c.serve()
		brief.Settle(c.io)
		f.mu.Lock()
		delete(f.plain, conn)
		f.mu.Unlock()
		if rest == nil || !f.handOver(handover{conn: &callerConn{Conn: conn, rest: rest, obs: f.h.obs}}) {
			_ = conn.Close()
			f.connections.moved(place, http.StateClosed)
		}
	}()
}

// handOver reports false if net/http takes nothing any more.
func (f *front) handOver(what handover) bool {
	select {
	case f.accepted <- what:
		return true
	case <-f.closed:
		return false
	}
}

// Accept implements net.Listener for net/http.
func (f *front) Accept() (net.Conn, error) {
	select {
	case got := <-f.accepted:
		return got.conn, got.err
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f *front) Close() error {
	err := net.ErrClosed
	f.closing.Do(func() {
		close(f.closed)
		err = f.Listener.Close()
	})
	return err
}

// stop ends the plain connections: those that idle at once, the others when
// their response is written, or lastWords from now. It waits for them.
func (f *front) stop() {
	f.mu.Lock()
	f.stopping.Store(true)
	for conn := range f.plain { // order-free: each is told alone
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // wakes its reader, which sees that the end has begun
	}
	f.mu.Unlock()
	last := time.AfterFunc(lastWords, func() { close(f.ended) })
	defer last.Stop()
	f.running.Wait()
}
