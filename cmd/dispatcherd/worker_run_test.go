package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

func TestEachConnectionErrorIsReportedOnce(t *testing.T) {
	dialed := func(errno syscall.Errno) error {
		return fmt.Errorf("dispatcher at s: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)})
	}
	told := absences{}
	require.True(t, told.fresh(dialed(syscall.ENOENT)))
	require.True(t, told.fresh(dialed(syscall.EACCES)))
	require.True(t, told.fresh(io.EOF))
	require.False(t, told.fresh(errors.New("another error, which is not a refusal of the system")))
	require.False(t, told.fresh(dialed(syscall.EACCES)))
	require.False(t, told.fresh(dialed(syscall.ENOENT)))
	require.Equal(t, "the dispatcher closed the connection", reasonOf(io.EOF))
	require.Equal(t, dialed(syscall.ENOENT).Error(), reasonOf(dialed(syscall.ENOENT)))
	require.Contains(t, whatKeepsOut(dialed(syscall.EACCES), "s"), "this user may not open it")
	require.Empty(t, whatKeepsOut(dialed(syscall.ENOENT), filepath.Join(t.TempDir(), "s")))
	require.Contains(t, whatKeepsOut(fmt.Errorf("waiting for the welcome: %w", workerproto.Complain(workerproto.BadJSON, 0, "HTTP/1.1 400")), "s"), "does not use the worker protocol")
}

func TestBlanksBetweenTypesAreIgnored(t *testing.T) {
	types := []string{"a", " b c", "d "}
	require.NoError(t, checkTypes(types))
	require.Equal(t, []string{"a", "b c", "d"}, types)
	require.ErrorContains(t, checkTypes([]string{"a", " "}), "--types names an empty type")
}
