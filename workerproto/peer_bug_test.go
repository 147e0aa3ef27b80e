package workerproto

import (
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// exhausted is a listener whose first calls of Accept fail because the process has
// no free descriptor.
type exhausted struct {
	net.Listener

	left atomic.Int32
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// acceptFailures counts failed calls of Accept.
type acceptFailures struct {
	NoObserver

	n atomic.Int32
}

func (a *acceptFailures) AcceptFailed(error) { a.n.Add(1) }

// Workers that reconnect until no descriptor is left neither end the server nor
// make it loop. The server pauses, counts the failures, and accepts connections
// when descriptors are free again. See docs/explanation/reliability-peers.md.
func TestPeer_B23_ServerSurvivesLackOfDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.sock")
	inner, err := Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	l := &exhausted{Listener: inner}
	l.left.Store(6)
	failures := &acceptFailures{}
	rec := newRecorder()
	startServerOn(t, l, Limits{}, rec, failures)
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	_, err = conn.Write([]byte(`{"op":"hello","versions":[1,1],"worker":"w","slots":[{"slot":0,"types":["pdf"]}]}` + "\n"))
	require.NoError(t, err)
	s := <-rec.opened
	require.Equal(t, "w", s.Worker())
	require.EqualValues(t, 6, failures.n.Load(), "exactly as many failures as the listener reports: pauses double from 5 ms")
	require.NoError(t, conn.Close())
	<-rec.closed
}
