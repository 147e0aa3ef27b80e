package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// What an operator has to know of a worker made of a program is on its error
// output: failures, without their text, and slots that nobody will use.
func TestTheExecWorkerTellsOfFailuresAndIdleSlots(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Workers.MaxSlots = 2
	h := w.start(cfg)
	c := w.program("worker", "run", "--worker-socket", cfg.WorkerSocket, "--types", "x", "--slots", "1",
		"--", "sh", "-c", "echo secret >&2; exit 65")
	id := w.insert("x", work{})
	w.await(id, dispatcherd.Failed)
	eventually(t, func() bool { return strings.Contains(c.errors.text(), "job 1 attempt 1 (x) did not succeed") },
		func() string { return "a line about the failure; it said " + c.errors.text() })
	require.NotContains(t, c.errors.text(), "secret")
	c.kill()
	h.awaitSlots(0)
	many := w.program("worker", "run", "--worker-socket", cfg.WorkerSocket, "--types", "x", "--slots", "3", "--", "true")
	eventually(t, func() bool { return strings.Contains(many.errors.text(), "3 slots are more than the limit of 2") },
		func() string { return "a word about the limit; it said " + many.errors.text() })
	many.kill()
}

// A worker that began before its dispatcher has said that nobody is there; what
// keeps it out afterwards is news.
func TestTheExecWorkerSaysOnceWhatKeepsItOut(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "w.sock")
	c := startChild(t, "program", "worker", "run", "--worker-socket", socket, "--types", "x", "--config", "", "--", "true")
	says := func(what string) {
		t.Helper()
		eventually(t, func() bool { return strings.Contains(c.errors.text(), what) },
			func() string { return "the line " + what + "; it said " + c.errors.text() })
	}
	says("no such file")
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	says("; this is no socket: give the dispatcher's as --worker-socket\n")
	require.NoError(t, os.Remove(socket))
	require.NoError(t, os.Symlink(socket, socket))
	says("too many levels of symbolic links")
	require.Equal(t, 3, strings.Count(c.errors.text(), "not connected, trying again: dispatcher at "+socket), c.errors.text())
	c.kill()
}

func TestEachReasonForHavingNoConnectionIsToldOnce(t *testing.T) {
	dialed := func(errno syscall.Errno) error {
		return fmt.Errorf("dispatcher at s: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)})
	}
	told := absences{}
	require.True(t, told.fresh(dialed(syscall.ENOENT)))
	require.True(t, told.fresh(dialed(syscall.EACCES)))
	require.True(t, told.fresh(io.EOF))
	require.False(t, told.fresh(errors.New("something else that is no refusal of the system")))
	require.False(t, told.fresh(dialed(syscall.EACCES)))
	require.False(t, told.fresh(dialed(syscall.ENOENT)))
	require.Contains(t, whatKeepsOut(dialed(syscall.EACCES), "s"), "this user may not open it")
	require.Empty(t, whatKeepsOut(dialed(syscall.ENOENT), filepath.Join(t.TempDir(), "s")))
	require.Contains(t, whatKeepsOut(fmt.Errorf("waiting for the welcome: %w", workerproto.Complain(workerproto.BadJSON, 0, "HTTP/1.1 400")), "s"), "does not speak to workers")
}

func TestBlanksBetweenTypesAreNoPartOfThem(t *testing.T) {
	types := []string{"a", " b c", "d "}
	require.NoError(t, checkTypes(types))
	require.Equal(t, []string{"a", "b c", "d"}, types)
	require.ErrorContains(t, checkTypes([]string{"a", " "}), "--types names an empty type")
}
