package e2e

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
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

// A program that cleans directories removes the sockets of a running daemon.
func TestRemovedSocketsAreCreatedAgain(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	for _, path := range []string{cfg.WorkerSocket, cfg.APISocket} {
		require.NoError(t, os.Remove(path))
	}
	w.worker("late", cfg.WorkerSocket, scriptSlots{Types: []string{"x"}, N: 1})
	h.awaitSlots(1)
	eventually(t, func() bool {
		_, err := os.Stat(cfg.APISocket)
		return err == nil
	}, func() string { return "the API socket" })
	require.Equal(t, http.StatusOK, h.caller().ask(http.MethodGet, "/readyz", "").StatusCode)
	require.Contains(t, h.log.text(), "the file of a socket was removed: the socket is created again")

	require.NoError(t, os.Remove(cfg.WorkerSocket))
	other, err := net.Listen("unix", cfg.WorkerSocket)
	require.NoError(t, err)
	defer other.Close()
	var ready response
	eventually(t, func() bool {
		ready = h.caller().ask(http.MethodGet, "/readyz", "")
		return ready.StatusCode == http.StatusServiceUnavailable
	}, func() string { return "a daemon that is not ready, because another program has its socket" })
	require.Contains(t, ready.body, "not ok: sockets cannot be reached, as the log says")
}

// The program that reads the log ends before the daemon: "dispatcherd serve 2>&1 | tee log".
func TestDaemonOutlivesTheReaderOfItsLog(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(programPath(t), "serve", "--config", "", "--worker-socket", cfg.WorkerSocket, "--api-socket", cfg.APISocket)
	cmd.Env = append(programEnv(), "DATABASE_URL="+w.dsn)
	cmd.Stderr = write
	require.NoError(t, startProcess(cmd))
	require.NoError(t, write.Close())
	for lines := bufio.NewScanner(read); lines.Scan() && !strings.Contains(lines.Text(), `"ready"`); {
	}
	require.NoError(t, read.Close())
	w.worker("w", cfg.WorkerSocket, scriptSlots{Types: []string{"x"}, N: 1}) // the daemon logs that it has come
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "it stops normally")
}
