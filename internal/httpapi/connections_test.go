package httpapi

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLongestIdleConnectionMakesRoom(t *testing.T) {
	h, _, seen := testHandler(t, func(c *Config) { c.MaxConnections = 2 })
	c := h.newConnections(false)
	var near, far []net.Conn
	join := func() {
		ours, theirs := net.Pipe()
		near, far = append(near, ours), append(far, theirs)
		c.changed(ours, http.StateNew)
	}
	isClosed := func(n int) {
		_, err := far[n].Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
	join()
	join()
	c.changed(near[0], http.StateActive)
	c.changed(near[0], http.StateIdle)
	require.Equal(t, 2, h.Gauges().Connections)
	join()
	isClosed(1)
	require.Equal(t, 2, h.Gauges().Connections)
	c.changed(near[1], http.StateActive) // its request arrived before the close: it counts again
	isClosed(0)
	c.changed(near[2], http.StateActive)
	join() // no connection is idle, so the newest one is closed
	isClosed(3)
	require.Equal(t, 3, seen.hits(BoundConnections))
	require.Equal(t, 2, h.Gauges().Connections)
	for _, conn := range near {
		c.changed(conn, http.StateClosed)
	}
	require.Zero(t, h.Gauges().Connections)
	require.Empty(t, c.open)
	require.Empty(t, c.idle)
}

// Connections without a user that the kernel names are those of one user.
func TestOneUserCannotTakeAllConnections(t *testing.T) {
	h, _, seen := testHandler(t, func(c *Config) { c.MaxConnections = 16 })
	c := h.newConnections(false)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer l.Close()
	other, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer other.Close()
	c.changed(other, http.StateIdle)
	for range 20 {
		ours, _ := net.Pipe()
		c.changed(ours, http.StateActive)
	}
	require.Equal(t, 1+14, h.Gauges().Connections, "seven eighths of 15, rounded up")
	require.Equal(t, 6, seen.hits(BoundConnections))
	require.Contains(t, c.open, other, "the idle connection of another user stays open")
}
