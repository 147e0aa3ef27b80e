package daemon

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// `serve` opens its sockets after Postgres has answered. `dev` opens them before it
// creates its Postgres.
func TestSocketInUseIsAConflict(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	held, err := workerproto.Listen(path, 0o600)
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Close()) }()
	cfg := Config{SocketMode: 0o600, WorkerSocket: path, APISocket: path + "a"}
	_, serve := (&Daemon{cfg: cfg}).listen(path)
	require.Equal(t, exit.Conflict, exit.CodeOf(t.Context(), serve))
	require.EqualError(t, OpenSockets(&cfg), serve.Error())
}
