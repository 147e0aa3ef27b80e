package api

import (
	"net"
	"net/http"
	"sync"
)

// connections keeps at most so many connections. When there is no room for a
// new one, the one that has been idle the longest is closed, so that whoever
// holds thousands open and says nothing keeps nobody out.
type connections struct {
	h *Handler

	mu   sync.Mutex
	open map[net.Conn]*place
	idle place // of a ring: the longest idle comes next
}

// place is where a connection stands. Its fields belong to connections.mu.
type place struct {
	conn       net.Conn
	open       bool
	prev, next *place // among those that idle; nil while a request is served
}

func (h *Handler) newConnections() *connections {
	c := &connections{h: h, open: map[net.Conn]*place{}}
	c.idle.prev, c.idle.next = &c.idle, &c.idle
	return c
}

// changed implements http.Server.ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if own, ok := conn.(*callerConn); ok {
		own.changed(state)
		conn = own.Conn
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.open[conn]
	if p == nil {
		p = &place{conn: conn}
	}
	c.moveLocked(p, state)
}

// begun takes a new connection in. Whoever holds its place may tell of it by
// moved until somebody else tells by changed.
func (c *connections) begun(conn net.Conn) *place {
	p := &place{conn: conn}
	c.moved(p, http.StateNew)
	return p
}

// moved is changed for who holds the place.
func (c *connections) moved(p *place, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moveLocked(p, state)
}

func (c *connections) moveLocked(p *place, state http.ConnState) {
	p.leaveIdle()
	switch state {
	case http.StateNew, http.StateIdle:
		last := c.idle.prev
		p.prev, p.next = last, &c.idle
		last.next, c.idle.prev = p, p
	case http.StateActive:
	default:
		c.dropLocked(p)
		return
	}
	if p.open {
		return
	}
	p.open = true
	c.open[p.conn] = p
	c.h.open.Add(1)
	if len(c.open) <= c.h.cfg.MaxConnections {
		return
	}
	victim := p // nobody idles: the newcomer has to go
	if first := c.idle.next; first != &c.idle {
		victim = first
		victim.leaveIdle()
	}
	c.dropLocked(victim)
	c.h.obs.Refused(BoundConnections)
	go func() { _ = victim.conn.Close() }() // a close may linger; the server notices by itself
}

// dropLocked forgets a connection. Should anything be heard of it before its end, it
// counts again.
func (c *connections) dropLocked(p *place) {
	if p.open {
		p.open = false
		delete(c.open, p.conn)
		c.h.open.Add(-1)
	}
}

func (p *place) leaveIdle() {
	if p.next != nil {
		p.prev.next, p.next.prev = p.next, p.prev
		p.prev, p.next = nil, nil
	}
}
