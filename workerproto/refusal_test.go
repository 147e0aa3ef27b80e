package workerproto

import (
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	errRead  = errors.New("remote error: tls: expired certificate")
	errWrite = errors.New("write: broken pipe")
	errClose = errors.New("tls: failed to send closeNotify alert")
)

// brokenConn is a connection that the peer has reset.
type brokenConn struct{ net.Conn }

func (brokenConn) Read([]byte) (int, error)  { return 0, errRead }
func (brokenConn) Write([]byte) (int, error) { return 0, errWrite }

func (c brokenConn) Close() error { return errors.Join(errClose, c.Conn.Close()) }

// Only the reason of the dispatcher matters to the user of a worker: after it, writes and the close fail as well.
func TestRefusalOfAConnectionIsOneLine(t *testing.T) {
	conn, peer := net.Pipe()
	defer peer.Close()
	_, err := Connect(t.Context(), brokenConn{conn}, &Hello{Worker: "w"})
	require.ErrorIs(t, err, errRead)
	require.EqualError(t, err, "waiting for the welcome: remote error: tls: expired certificate")
}
