package dsn_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/dsn"
)

func TestKeepalivesAreThoseOfTheConnectionString(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	for parameters, want := range map[string][2]int{
		"keepalives_idle=41 keepalives_count=3": {1, 41},
		"keepalives=0":                          {0, 0},
	} {
		config, err := dsn.Parse("host=h user=u dbname=d " + parameters)
		require.NoError(t, err)
		conn, err := config.ConnConfig.DialFunc(t.Context(), "tcp", server.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		raw, err := conn.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) {
			on, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
			require.NoError(t, err)
			require.Equal(t, want[0], on, parameters)
			if on == 0 {
				return
			}
			idle, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
			require.NoError(t, err)
			require.Equal(t, want[1], idle, parameters)
		}))
	}
}
