package fault

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Rules say what happens to the bytes that pass through the proxy.
type Rules struct {
	HoldUp   bool          // bytes of the client wait at the proxy
	HoldDown bool          // bytes of the server wait at the proxy
	HoldEnds bool          // the end of a connection waits as its bytes do, as over a link that is down
	Refuse   bool          // new connections are closed at once
	Delay    time.Duration // delay of every piece in each direction
	// LoseAnswers is the share of the statements in Lossy whose answer is lost.
	// Lossy contains names of prepared statements and texts of queries; one that
	// ends with _ stands for all that begin with it. The server
	// has executed such a statement, and its connection then breaks.
	LoseAnswers float64
	Lossy       []string
}

// Proxy forwards connections. With the zero Rules it changes nothing.
type Proxy struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	accepted sync.WaitGroup

	mu      sync.Mutex
	rules   Rules
	changed chan struct{} // closed when the rules change
	pairs   map[*pair]struct{}
	closed  bool
	lost    int
}

// Listen starts a proxy for a server. Both addresses are given as for net.Dial. A
// Unix socket that exists at the address is replaced.
func Listen(network, address, serverNetwork, server string) (*Proxy, error) {
	if network == "unix" {
		if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("replacing an old socket: %w", err)
		}
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("the fault proxy: %w", err)
	}
	p := &Proxy{
		listener: l, changed: make(chan struct{}), pairs: map[*pair]struct{}{},
		dial: func() (net.Conn, error) { return net.DialTimeout(serverNetwork, server, 5*time.Second) },
	}
	p.accepted.Go(p.accept)
	return p, nil
}

// Addr is the address to which clients connect.
func (p *Proxy) Addr() net.Addr { return p.listener.Addr() }

// Set replaces the rules, also for existing connections.
func (p *Proxy) Set(r Rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = r
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) now() (Rules, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules, p.changed
}

// Cut closes every connection in an orderly way: both ends read an end of file.
func (p *Proxy) Cut() { p.each((*pair).cut) }

// Reset breaks every connection. Over TCP both ends get an error. A Unix socket has
// no reset and is cut.
func (p *Proxy) Reset() { p.each((*pair).reset) }

// HalfOpen closes the server's side of every connection. The client receives
// neither an answer nor the end of the connection.
func (p *Proxy) HalfOpen() { p.each((*pair).halfOpen) }

// Lost returns the number of answers that were lost by the rule LoseAnswers.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Open returns the number of open connections.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

// Close ends the proxy and every connection.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.accepted.Wait()
	return err
}

func (p *Proxy) each(do func(*pair)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		do(c)
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // the listener is closed, or the error is permanent
		}
		if rules, _ := p.now(); rules.Refuse {
			_ = client.Close() // refused
			continue
		}
		p.accepted.Go(func() { p.serve(client) })
	}
}

// serve forwards one connection until it is over.
func (p *Proxy) serve(client net.Conn) {
	server, err := p.dial()
	if err != nil {
		_ = client.Close() // the client sees what it would see if no process listened
		return
	}
	c := &pair{proxy: p, client: client, server: server, done: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		c.cut()
		return
	}
	p.pairs[c] = struct{}{}
	p.mu.Unlock()
	c.run()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}
