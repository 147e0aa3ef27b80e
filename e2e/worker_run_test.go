package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// The exec worker reports on its error output what an operator must know: failures without
// their texts, and slots above the limit of the dispatcher.
func TestExecWorkerReportsFailuresAndExcessSlots(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Workers.MaxSlots = 2
	h := w.start(cfg)
	c := w.program("worker", "run", "--worker-socket", cfg.WorkerSocket, "--types", "x", "--slots", "1",
		"--", "sh", "-c", "echo secret >&2; exit 65")
	id := w.insert("x", work{})
	w.await(id, dispatcherd.Failed)
	failed := regexp.MustCompile(`\d\d:\d\d:\d\d\.\d{3}Z job 1 attempt 1 \(x\) did not succeed: exit status 65`)
	eventually(t, func() bool {
		return failed.MatchString(c.errors.text())
	},
		func() string { return "a line about the failure; the output is " + c.errors.text() })
	require.NotContains(t, c.errors.text(), "secret")
	c.kill()
	h.awaitSlots(0)
	many := w.program("worker", "run", "--worker-socket", cfg.WorkerSocket, "--types", "x", "--slots", "3", "--", "true")
	eventually(t, func() bool { return strings.Contains(many.errors.text(), "3 slots are more than the limit of 2") },
		func() string { return "a line about the limit; the output is " + many.errors.text() })
	many.kill()
}

// A worker that started before its dispatcher has reported that no dispatcher answers. A later
// error of another kind is reported as well.
func TestExecWorkerReportsEachConnectionErrorOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "w.sock")
	c := startProgram(t, nil, "worker", "run", "--worker-socket", socket, "--types", "x", "--config", "", "--", "true")
	says := func(what string) {
		t.Helper()
		eventually(t, func() bool { return strings.Contains(c.errors.text(), what) },
			func() string { return "the line " + what + "; it said " + c.errors.text() })
	}
	says("no such file")
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	says("; this is not a socket: give the dispatcher's worker socket as --worker-socket\n")
	require.NoError(t, os.Remove(socket))
	require.NoError(t, os.Symlink(socket, socket))
	says("too many levels of symbolic links")
	require.Equal(t, 3, strings.Count(c.errors.text(), "not connected, retrying: dispatcher at "+socket), c.errors.text())
	c.kill()
}

func TestExecWorkerEndsOnTheAPISocket(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	c := w.program("worker", "run", "--worker-socket", h.cfg.APISocket, "--types", "x", "--", "true")
	c.ends(t, exit.Conflict)
	require.Contains(t, c.errors.text(), "workers connect to the socket of --worker-socket")
}
