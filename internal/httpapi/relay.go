package httpapi

import (
	"context"
	"errors"
	"net"
)

// Relay is a listener whose connections are prepared before Accept returns them, each in a goroutine of its own. So a slow peer delays no
// other one.
type Relay struct {
	net.Listener

	Closed context.Context // when it is done, no further connection is passed on
	close  context.CancelFunc
	ready  chan accepted
}

// accepted is a connection, or the error of the listener.
type accepted struct {
	conn net.Conn
	err  error
}

// NewRelay returns a relay for the connections of l. It is closed when ctx is done, but l is not.
func NewRelay(ctx context.Context, l net.Listener) *Relay {
	r := &Relay{Listener: l, ready: make(chan accepted)}
	r.Closed, r.close = context.WithCancel(ctx)
	return r
}

// branch returns a relay of the same listener for other connections. Closing one of the two closes both.
func (r *Relay) branch() *Relay {
	other := *r
	other.ready = make(chan accepted)
	return &other
}

// Run calls begin with each connection until the listener is closed. begin must not block. After an error of the listener Run waits until
// the caller of Accept has it, and that caller pauses.
func (r *Relay) Run(begin func(net.Conn)) {
	for {
		conn, err := r.Listener.Accept()
		if err == nil {
			begin(conn)
			continue
		}
		if !r.Pass(nil, err) || errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// Pass passes a connection, or the error of the listener, to Accept. It returns false if the relay is closed.
func (r *Relay) Pass(conn net.Conn, err error) bool {
	select {
	case r.ready <- accepted{conn, err}:
		return true
	case <-r.Closed.Done():
		return false
	}
}

// Accept implements net.Listener.
func (r *Relay) Accept() (net.Conn, error) {
	select {
	case a := <-r.ready:
		return a.conn, a.err
	case <-r.Closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (r *Relay) Close() error {
	r.close()
	return r.Listener.Close()
}
