package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Opening a pipe waits for a writer. So a pipe in place of the token file stopped the service that revokes tokens, and the daemon could not
// stop.
func TestFilesOfProofsThatAreNoFilesAreRefused(t *testing.T) {
	pipe, key := filepath.Join(t.TempDir(), "pipe"), filepath.Join(t.TempDir(), "key")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.WriteFile(key, nil, 0o600))
	for _, c := range []Config{
		{API: APIConfig{TokenFile: pipe}}, {API: APIConfig{TokenFile: t.TempDir()}}, {TLS: TLSFiles{Cert: pipe, Key: key}},
		{TLS: TLSFiles{Cert: key, Key: pipe}}, {TLS: TLSFiles{Cert: key, Key: key, ClientCA: pipe}},
	} {
		_, err := c.readProofs()
		require.ErrorContains(t, err, "is a directory, pipe or device: give a file")
	}
}

func TestTokenFileThatIsTooLongSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("#", maxTokenFile+1)), 0o600))
	c := Config{API: APIConfig{TokenFile: path}}
	_, err := c.readProofs()
	require.ErrorContains(t, err, "it has more than 1048576 bytes")
}
