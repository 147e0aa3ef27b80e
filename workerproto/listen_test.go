//go:build unix

package workerproto

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListenSetsTheModeAndCleansUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "dir", "w.sock")
	l, err := Access{Mode: 0o660}.Listen(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o660), info.Mode().Perm())
	info, err = os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0), info.Mode().Perm()&0o007, "the directory is private")
	require.NoError(t, l.Close())
	require.NoFileExists(t, path)
	l, err = Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err, "the lock is free again")
	require.NoError(t, l.Close())
}

func TestSocketInUseIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.sock")
	l, err := Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	_, err = Access{Mode: 0o600}.Listen(path)
	require.ErrorIs(t, err, ErrInUse)
	require.EqualError(t, err, fmt.Sprintf("socket %q is in use by another dispatcher: stop it or choose another path "+
		"(--worker-socket, --api-socket); one that was told to stop lets running jobs end first", path))
	conn, err := net.Dial("unix", path)
	require.NoError(t, err, "the first one still listens")
	require.NoError(t, conn.Close())
	require.NoError(t, l.Close())

	other, err := net.Listen("unix", path) // this program does not use the lock
	require.NoError(t, err)
	_, err = Access{Mode: 0o600}.Listen(path)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "by a program that listens on it")
	require.NoError(t, other.Close())
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.sock")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	old.SetUnlinkOnClose(false)
	require.NoError(t, old.Close()) // as after a crash
	require.FileExists(t, path)
	l, err := Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, l.Close())
}

func TestListenRefusesFilesAndLinks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	_, err := Access{Mode: 0o600}.Listen(file)
	require.ErrorContains(t, err, "is no socket")
	require.FileExists(t, file)

	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(file, link+".lock"))
	_, err = Access{Mode: 0o600}.Listen(link)
	require.ErrorIs(t, err, syscall.ELOOP, "the lock file must not be a link")

	_, err = Access{Mode: 0o600}.Listen(filepath.Join(dir, strings.Repeat("x", 108)))
	require.ErrorContains(t, err, "choose one of 1 to")
}

func TestNoOtherUserConnectsBeforeTheModeIsSet(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system ignores the mode of the descriptor")
	}
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	path := filepath.Join(t.TempDir(), "w.sock")
	l, err := listenAlone(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, l.Close())
	require.NoFileExists(t, path)
}

func TestLockOutlivesItsListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.sock")
	l, err := Access{Mode: 0o600}.Listen(path)
	require.NoError(t, err)
	lock := TakeLock(l)
	_, err = Lock(path)
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, l.Close())
	_, err = Access{Mode: 0o600}.Listen(path)
	require.ErrorIs(t, err, ErrInUse, "the file holds the lock")
	require.NoError(t, lock.Close())
	again, err := Lock(path)
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.Nil(t, TakeLock(&net.UnixListener{}))
}

func TestSocketHasItsGroupAndMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "w.sock")
	_, err := Access{Group: "no-such-group"}.Listen(path)
	require.ErrorContains(t, err, "unknown group no-such-group")
	require.NoFileExists(t, path)
	group := os.Getgid()
	if os.Getuid() == 0 { // another user may not give a file to a group that it is not in
		group = 4001
	}
	l, err := Access{Group: strconv.Itoa(group), Mode: 0o620}.Listen(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o620), info.Mode().Perm())
	require.EqualValues(t, group, info.Sys().(*syscall.Stat_t).Gid)
	info, err = os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o001), info.Mode().Perm()&0o007, "the group can reach the socket")
}

// The umask does not apply, so a group reaches its socket in each directory that was created.
func TestDirectoryIsOpenToTheGroupOfAnotherSocket(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	parent := filepath.Join(t.TempDir(), "new")
	l, err := Access{Shared: true}.Listen(filepath.Join(parent, "dir", "w.sock"))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	for _, dir := range []string{parent, filepath.Join(parent, "dir")} {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o751), info.Mode().Perm())
	}
}

func TestDirectoryThatExcludesTheGroupIsNamed(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "run")
	path, group := filepath.Join(directory, "w.sock"), os.Getgid()
	require.NoError(t, os.Mkdir(directory, 0o700))
	require.Empty(t, Access{}.Unreachable(path), "the socket has no group of its own")
	own, other := Access{Group: strconv.Itoa(group)}, Access{Group: strconv.Itoa(group + 1)}
	require.Contains(t, own.Unreachable(path), "has mode 0700, so group "+own.Group+" cannot enter it: chmod o+x "+directory)
	require.NoError(t, os.Chmod(directory, 0o750))
	require.Empty(t, own.Unreachable(path))
	require.NotEmpty(t, other.Unreachable(path))
	require.NoError(t, os.Chmod(directory, 0o751))
	require.Empty(t, other.Unreachable(path))
}
