package daemon

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// `serve` opens its sockets after Postgres has answered. `dev` opens them before it
// creates its Postgres.
func TestSocketInUseIsAConflict(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	held, err := workerproto.Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Close()) }()
	cfg := Config{WorkerSocket: path, APISocket: path + "a"}
	_, serve := (&Daemon{cfg: cfg}).listen(path, workerproto.Access{})
	require.Equal(t, exit.Conflict, exit.CodeOf(t.Context(), serve))
	require.EqualError(t, OpenSockets(&cfg), serve.Error())
}

func TestGroupOfOneSocketReachesTheDirectoryOfBoth(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := filepath.Join(t.TempDir(), "new")
	cfg := Config{
		WorkerSocket: filepath.Join(dir, "w"),
		APISocket:    filepath.Join(dir, "a"),
		APIAccess:    workerproto.Access{Group: strconv.Itoa(os.Getgid())},
	}
	require.NoError(t, OpenSockets(&cfg))
	defer CloseSockets(&cfg)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o751), info.Mode().Perm())
}
