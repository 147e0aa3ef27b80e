package daemon

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyPeersOnTheUnixSocketAreOperators(t *testing.T) {
	require.False(t, isOperator(nil))
	tcp, other := net.Pipe()
	require.False(t, isOperator(tcp))
	require.NoError(t, tcp.Close())
	require.NoError(t, other.Close())
}
