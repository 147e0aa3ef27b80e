package daemon

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

func TestSocketInUseIsAConflict(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	held, err := workerproto.Listen(path, 0o600)
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Close()) }()
	_, err = (&Daemon{cfg: Config{SocketMode: 0o600}}).listen(path)
	require.Equal(t, exit.Conflict, exit.CodeOf(t.Context(), err))
}
