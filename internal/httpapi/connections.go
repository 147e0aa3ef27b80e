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
//
// Guests are connections over TCP whose peers have not proved who they are. They count for no user; the listener bounds them.
type connections struct {
	h      *Handler
	guests bool // a new connection is a guest

	mu    sync.Mutex
	open  map[net.Conn]*openConn
	idle  map[string]*list.List // by user: of net.Conn; the longest idle is at the front
	users *quota.Quota
}

// openConn is an open connection.
type openConn struct {
	user string
	idle *list.Element // position among the idle connections of its user; nil while a request is served, and of a guest

	guest bool
}

func (h *Handler) newConnections(guests bool) *connections {
	return &connections{
		h: h, guests: guests, open: map[net.Conn]*openConn{}, idle: map[string]*list.List{}, users: quota.New(h.cfg.MaxConnections),
	}
}

// changed implements http.Server.ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.open[conn]
	if at != nil && at.idle != nil {
		c.idle[at.user].Remove(at.idle)
		at.idle = nil
	}
	idle := state == http.StateNew || state == http.StateIdle
	if !idle && state != http.StateActive {
		c.dropLocked(conn)
		return
	}
	fresh := at == nil
	if fresh {
		at = &openConn{user: workerproto.PeerOf(conn).User(), guest: c.guests}
		c.open[conn] = at
		c.h.open.Add(1)
	}
	if idle && !at.guest {
		at.idle = c.idleOf(at.user).PushBack(conn)
	}
	if fresh && !at.guest {
		c.countLocked(conn, at.user)
	}
}

// identified counts a connection for the user of its current request.
func (c *connections) identified(conn net.Conn, user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.open[conn]
	if at == nil || !at.guest && at.user == user {
		return
	}
	c.uncountLocked(at)
	at.user, at.guest = user, false
	c.countLocked(conn, user)
}

// countLocked counts a connection for a user.
func (c *connections) countLocked(conn net.Conn, user string) {
	fits := c.users.Fits(user, 1)
	c.users.Add(user, 1)
	if !fits {
		c.makeRoomLocked(conn, user)
	}
}

// uncountLocked is the opposite of countLocked.
func (c *connections) uncountLocked(at *openConn) {
	if at.guest {
		return
	}
	if c.users.Add(at.user, -1); c.users.Of(at.user) == 0 {
		delete(c.idle, at.user)
	}
}

// idleOf returns the idle connections of a user.
func (c *connections) idleOf(user string) *list.List {
	if c.idle[user] == nil {
		c.idle[user] = list.New()
	}
	return c.idle[user]
}

// makeRoomLocked closes the longest idle connection of a user, or the newest one if none is
// idle.
func (c *connections) makeRoomLocked(newest net.Conn, user string) {
	victim := newest
	if first := c.idleOf(user).Front(); first != nil {
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
	c.uncountLocked(at)
}
