package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

func TestConnectionErrorSaysWhatKeepsOut(t *testing.T) {
	dialed := func(errno syscall.Errno) error {
		return fmt.Errorf("dispatcher at s: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)})
	}
	require.Equal(t, "the dispatcher closed the connection", reasonOf(io.EOF))
	require.Equal(t, dialed(syscall.ENOENT).Error(), reasonOf(dialed(syscall.ENOENT)))
	require.Contains(t, whatKeepsOut(dialed(syscall.EACCES), "s"), "this user may not open it")
	require.Empty(t, whatKeepsOut(dialed(syscall.ENOENT), filepath.Join(t.TempDir(), "s")))
	require.Contains(t,
		whatKeepsOut(fmt.Errorf("waiting for the welcome: %w", workerproto.Complain(workerproto.BadJSON, "HTTP/1.1 400")), "s"),
		"does not use the worker protocol")
}

func TestOutcomeOfAProgramIsReportedWithoutItsText(t *testing.T) {
	run := func(ctx context.Context, program string, args ...string) string {
		_, err := worker.Command(program, args...)(ctx, &worker.Job{})
		require.Error(t, err)
		return outcomeOf(ctx, err)
	}
	require.Equal(t, "exit status 65", run(t.Context(), "sh", "-c", "echo secret >&2; exit 65"))
	require.Equal(t, "signal: killed", run(t.Context(), "sh", "-c", "kill -9 $$"))
	require.Equal(t, "the program did not start", run(t.Context(), "/does/not/exist"))
	require.Equal(t, "its output cannot be a result", run(t.Context(), "printf", `\377`))
	for _, cause := range []error{worker.ErrCancelled, worker.ErrTimeout} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(fmt.Errorf("%w: 1s", cause))
		require.Equal(t, cause.Error(), run(ctx, "cat"))
	}
}

func TestBlanksBetweenTypesAreIgnored(t *testing.T) {
	types := []string{"a", " b c", "d "}
	require.NoError(t, checkTypes(types, "x"))
	require.Equal(t, []string{"a", "b c", "d"}, types)
	require.ErrorContains(t, checkTypes([]string{"a", " "}, "x"), "--types names an empty type")
}

func TestImpossibleWorkerSocketIsAUsageError(t *testing.T) {
	err := (&workerRun{types: []string{"x"}, socket: strings.Repeat("x", 200)}).check("x")
	require.Equal(t, exit.Usage, exit.CodeOf(t.Context(), err))
	require.ErrorContains(t, err, "--worker-socket: impossible socket path")
}
