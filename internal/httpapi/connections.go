package httpapi

import (
	"container/list"
	"net"
	"net/http"
	"sync"

	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// connections bounds the open connections of one listener. If a new connection exceeds the
// share of its user, the connection of the user that has been idle longest is closed. So
// idle connections never exclude a new caller, and no user excludes the others.
type connections struct {
	h *Handler

	mu    sync.Mutex
	open  map[net.Conn]openConn
	idle  map[string]*list.List // by user: of net.Conn; the longest idle is at the front
	users *quota.Quota
}

// openConn is an open connection.
type openConn struct {
	user string
	idle *list.Element // position among the idle connections of its user; nil while a request is served
}

func (h *Handler) newConnections() *connections {
	return &connections{h: h, open: map[net.Conn]openConn{}, idle: map[string]*list.List{}, users: quota.New(h.cfg.MaxConnections)}
}

// changed implements http.Server.ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.open[conn]
	if at.idle != nil {
		c.idle[at.user].Remove(at.idle)
		at.idle = nil
	}
	idle := state == http.StateNew || state == http.StateIdle
	if !idle && state != http.StateActive {
		c.dropLocked(conn)
		return
	}
	if !known {
		at.user = workerproto.PeerOf(conn).User()
		if c.idle[at.user] == nil {
			c.idle[at.user] = list.New()
		}
	}
	if idle {
		at.idle = c.idle[at.user].PushBack(conn)
	}
	c.open[conn] = at
	if known {
		return
	}
	c.h.open.Add(1)
	fits := c.users.Fits(at.user, 1)
	c.users.Add(at.user, 1)
	if !fits {
		c.makeRoomLocked(conn, at.user)
	}
}

// makeRoomLocked closes the longest idle connection of a user, or the newest one if none is
// idle.
func (c *connections) makeRoomLocked(newest net.Conn, user string) {
	victim := newest
	if first := c.idle[user].Front(); first != nil {
		victim = c.idle[user].Remove(first).(net.Conn)
	}
	c.dropLocked(victim)
	c.h.obs.Refused(BoundConnections)
	go func() { _ = victim.Close() }() // Close may block; the server notices the end at its next read
}

// dropLocked forgets a connection.
func (c *connections) dropLocked(conn net.Conn) {
	at, known := c.open[conn]
	if !known {
		return
	}
	delete(c.open, conn)
	c.h.open.Add(-1)
	if c.users.Add(at.user, -1); c.users.Of(at.user) == 0 {
		delete(c.idle, at.user)
	}
}
