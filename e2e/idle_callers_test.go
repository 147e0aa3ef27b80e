package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// visit connects, sends one request, reads the response and keeps the connection open.
func visit(t *testing.T, network, address, header string) (net.Conn, int) {
	t.Helper()
	conn, err := net.Dial(network, address)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET /v1/types HTTP/1.1\r\nHost: d\r\n"+header+"\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return conn, res.StatusCode
}
