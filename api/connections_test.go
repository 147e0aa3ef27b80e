package api

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLongestIdleMakesRoomHoweverItsStateIsTold(t *testing.T) {
	h, _, seen := house(t, func(c *Config) { c.MaxConnections = 2 })
	c := h.newConnections()
	var places []*place
	var peers []net.Conn
	join := func() {
		near, far := net.Pipe()
		places, peers = append(places, c.begun(near)), append(peers, far)
	}
	isClosed := func(n int) {
		_, err := peers[n].Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
	join()
	join()
	c.moved(places[0], http.StateActive)
	c.changed(places[0].conn, http.StateIdle) // net/http's by now
	require.Equal(t, 2, h.Gauges().Connections)
	join()
	isClosed(1)
	require.Equal(t, 2, h.Gauges().Connections)
	c.moved(places[1], http.StateActive) // its request had come before
	isClosed(0)
	c.changed(places[1].conn, http.StateActive)
	c.moved(places[2], http.StateActive)
	join() // nobody idles
	isClosed(3)
	require.Equal(t, 3, seen.hits(BoundConnections))
	require.Equal(t, 2, h.Gauges().Connections)
	for _, p := range places {
		c.moved(p, http.StateClosed)
		c.changed(p.conn, http.StateClosed)
	}
	require.Zero(t, h.Gauges().Connections)
	require.Empty(t, c.open)
}

func TestARequestTakesNoMemoryForWhereItsConnectionStands(t *testing.T) {
	h, _, _ := house(t, nil)
	c := h.newConnections()
	p, other := c.begun(mute{}), c.begun(&mute{})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.moved(p, http.StateActive)
		c.changed(other.conn, http.StateActive)
		c.changed(other.conn, http.StateIdle)
		c.moved(p, http.StateIdle)
	}))
}
