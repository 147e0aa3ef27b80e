//go:build unix

package workerproto

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// greet answers each connection with a byte until the listener is closed.
func greet(t *testing.T, l net.Listener) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				assert.ErrorIs(t, err, net.ErrClosed)
				return
			}
			_, _ = conn.Write([]byte("!")) // Restore has closed it if it only looked for a listener
			assert.NoError(t, conn.Close())
		}
	}()
	t.Cleanup(func() {
		_ = l.Close() // a test may have closed it
		<-ended
	})
}

// requireGreeting connects to a socket.
func requireGreeting(t *testing.T, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer conn.Close()
	said, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "!", string(said))
}

func TestSocketWhoseFileWasRemovedIsCreatedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	path := filepath.Join(dir, "w.sock")
	l, err := Access{Mode: 0o620}.Listen(path)
	require.NoError(t, err)
	greet(t, l)
	restored, err := Restore(l)
	require.NoError(t, err)
	require.False(t, restored, "the file is there")
	for _, remove := range []string{path, dir} {
		require.NoError(t, os.RemoveAll(remove))
		restored, err = Restore(l)
		require.NoError(t, err)
		require.True(t, restored)
		requireGreeting(t, path)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o620), info.Mode().Perm())
	}
	require.NoError(t, l.Close())
	require.NoFileExists(t, path)
	restored, err = Restore(l)
	require.NoError(t, err)
	require.False(t, restored, "it is closed")
}

// The socket and the lock of a dispatcher were removed, so a second one can start on the same path.
func TestEndOfADispatcherLeavesTheSocketOfItsSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.sock")
	old, err := Access{}.Listen(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Remove(path+".lock"))
	successor, err := Access{}.Listen(path)
	require.NoError(t, err)
	greet(t, successor)
	restored, err := Restore(old)
	require.ErrorIs(t, err, ErrInUse)
	require.False(t, restored)
	require.NoError(t, old.Close())
	requireGreeting(t, path)
}

func TestRemovedSocketOfAServiceManagerIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.sock")
	manager, err := net.Listen("unix", path)
	require.NoError(t, err)
	l := Adopt(manager)
	greet(t, l)
	requireGreeting(t, path)
	require.NoError(t, os.Remove(path))
	_, err = Restore(l)
	require.EqualError(t, err, `the socket "`+path+`" was removed: restart the unit of the service manager that has created it`)

	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.Equal(t, tcp, Adopt(tcp), "it has no file")
	require.NoError(t, tcp.Close())
}
