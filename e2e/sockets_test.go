package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
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

func TestErrorOfASecondDispatcherMentionsAStoppingFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	held, err := workerproto.Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Close()) }()
	got := invocation{args: []string{"dev", "--data-dir", t.TempDir(), "--worker-socket", path, "--api-socket", path + "a"}}.runs(t)
	require.Equal(t, exit.Conflict, got.code)
	require.Contains(t, got.err, "is in use by another dispatcher")
	require.Contains(t, got.err, "one that was told to stop lets running jobs end first")
}

func TestErrorOfADeadSocketNamesTheSocket(t *testing.T) {
	got := invocation{args: []string{"slot", "list", "--api-socket", filepath.Join(t.TempDir(), "none.sock")}}.runs(t)
	require.Equal(t, exit.Unavailable, got.code)
	require.Contains(t, got.err, "no dispatcher answers on ")
	require.NotContains(t, got.err, "Postgres")
	require.NotContains(t, got.err, "database")
}
