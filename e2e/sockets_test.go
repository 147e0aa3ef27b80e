package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

func TestDevChecksItsSocketsBeforeItCreatesADatabase(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	long := filepath.Join(dir, strings.Repeat("x", 120))
	got := invocation{args: []string{"dev", "--data-dir", data, "--worker-socket", filepath.Join(dir, "w"), "--api-socket", long}}.runs(t)
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, "choose one of 1 to")
	require.NoDirExists(t, data)
	require.NoFileExists(t, filepath.Join(dir, "w"), "the valid socket is removed again")
}
