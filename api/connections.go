package api

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// connections bounds the open connections of one listener. If a new connection exceeds the
// bound, the connection that has been idle longest is closed. So idle connections never
// exclude a new caller.
type connections struct {
	h *Handler

	mu   sync.Mutex
	open map[net.Conn]*list.Element // position in idle; nil while a request is served
	idle list.List                  // of net.Conn; the longest idle is at the front
}

func (h *Handler) newConnections() *connections {
	return &connections{h: h, open: map[net.Conn]*list.Element{}}
}

// changed implements http.Server.ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if timed, ok := conn.(*timedConn); ok {
		timed.setState(state)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.open[conn]
	if at != nil {
		c.idle.Remove(at)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		c.open[conn] = c.idle.PushBack(conn)
	case http.StateActive:
		c.open[conn] = nil
	default:
		c.dropLocked(conn)
		return
	}
	if known {
		return
	}
	c.h.open.Add(1)
	if len(c.open) > c.h.cfg.MaxConnections {
		c.makeRoomLocked(conn)
	}
}

// makeRoomLocked closes the longest idle connection, or the newest one if none is idle.
func (c *connections) makeRoomLocked(newest net.Conn) {
	victim := newest
	if first := c.idle.Front(); first != nil {
		victim = c.idle.Remove(first).(net.Conn)
	}
	c.dropLocked(victim)
	c.h.obs.Refused(BoundConnections)
	go func() { _ = victim.Close() }() // Close may block; the server notices the end at its next read
}

// dropLocked forgets a connection.
func (c *connections) dropLocked(conn net.Conn) {
	if _, known := c.open[conn]; known {
		delete(c.open, conn)
		c.h.open.Add(-1)
	}
}
