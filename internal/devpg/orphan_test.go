package devpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childDir is the variable that makes the test binary call Start on a directory; "-" = ephemeral.
const childDir = "DEVPG_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

// child starts a server, prints its data directory and pid, and runs it until the input ends.
func child(dir string) int {
	o := Options{Dir: dir}
	if dir == "-" {
		o.Dir, o.Ephemeral = "", true
	}
	s, err := Start(context.Background(), o)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println(s.data(), s.PID())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Stop(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

// family is a child process and its server.
type family struct {
	cmd        *exec.Cmd
	stdin      io.Closer
	data       string
	postmaster int
}

// spawnChild runs the test binary at path (its own if empty) as a child.
func spawnChild(t *testing.T, path, dir string, adjust func(*exec.Cmd)) *family {
	t.Helper()
	if path == "" {
		path = os.Args[0]
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	if adjust != nil {
		adjust(cmd)
	}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	data, pid, _ := strings.Cut(strings.TrimSpace(line), " ")
	f := &family{cmd: cmd, stdin: stdin, data: data}
	f.postmaster, err = strconv.Atoi(pid)
	require.NoError(t, err, "the child says: %s", line)
	return f
}

// kill9 ends the child by SIGKILL.
func (f *family) kill9(t *testing.T) {
	t.Helper()
	require.NoError(t, f.cmd.Process.Signal(syscall.SIGKILL))
	require.Error(t, f.cmd.Wait())
}

func (f *family) requirePostmasterGone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return !runsIn(f.postmaster, f.data) }, 30*time.Second, 5*time.Millisecond)
}

func TestSIGKILLOfTheCallerEndsThePostmaster(t *testing.T) {
	f := spawnChild(t, "", reachableDir(t), nil)
	require.True(t, runsIn(f.postmaster, f.data))
	f.kill9(t)
	f.requirePostmasterGone(t)
	require.NoFileExists(t, filepath.Join(f.data, "postmaster.pid"), "it shut down normally")
}

func TestStartAfterSIGKILLWaitsForThePredecessor(t *testing.T) {
	dir := reachableDir(t)
	for range 3 {
		f := spawnChild(t, "", dir, nil)
		f.kill9(t)
		s := start(t, Options{Dir: dir})
		require.Equal(t, 1, ask[int](t, s.URL("postgres"), "SELECT 1"))
		require.NoError(t, s.Stop())
		f.requirePostmasterGone(t)
	}
}

func TestPostmasterKilledWithItsCallerIsReplaced(t *testing.T) {
	dir := reachableDir(t)
	f := spawnChild(t, "", dir, nil)
	require.NoError(t, syscall.Kill(f.postmaster, syscall.SIGKILL))
	f.kill9(t)
	require.FileExists(t, filepath.Join(f.data, "postmaster.pid"), "no process has removed it")
	s := start(t, Options{Dir: dir})
	require.Equal(t, 1, ask[int](t, s.URL("postgres"), "SELECT 1"))
}

func TestOtherProcessWithThePidOfThePostmasterContinues(t *testing.T) {
	dir := reachableDir(t)
	require.NoError(t, start(t, Options{Dir: dir}).Stop())
	other := exec.Command("/bin/sh", "-c", "read -r _")
	hold, err := other.StdinPipe()
	require.NoError(t, err)
	other.SysProcAttr = &syscall.SysProcAttr{Credential: mustOwner(t).credential()} // Postgres respects pids of its own user
	require.NoError(t, other.Start())
	pidFile := filepath.Join(dir, "data", "postmaster.pid")
	require.NoError(t, os.WriteFile(pidFile, fmt.Appendf(nil, "%d\n%s/data\n0\n5432\n", other.Process.Pid, dir), 0o600))

	s := start(t, Options{Dir: dir})
	require.Equal(t, 1, ask[int](t, s.URL("postgres"), "SELECT 1"))
	require.NoError(t, hold.Close())
	require.EqualError(t, other.Wait(), "exit status 1", "it ended at the end of its input, not by a signal")
}

func mustOwner(t *testing.T) owner {
	t.Helper()
	o, err := chooseOwner(nil)
	require.NoError(t, err)
	return o
}

func TestSIGKILLOfTheCallerRemovesItsTemporaryDirectories(t *testing.T) {
	long := filepath.Join(reachableDir(t), strings.Repeat("x", maxSocketPath)) // the socket is elsewhere
	alive := start(t, Options{Ephemeral: true})
	for _, dir := range []string{"-", long} {
		f := spawnChild(t, "", dir, nil)
		text, err := os.ReadFile(filepath.Join(filepath.Dir(f.data), "lock"))
		require.NoError(t, err)
		socket := strings.Fields(string(text))[1]
		f.kill9(t)
		f.requirePostmasterGone(t)
		require.Eventually(t, func() bool {
			_, err := os.Stat(socket)
			return errors.Is(err, fs.ErrNotExist)
		}, 30*time.Second, 5*time.Millisecond)
		if dir == long {
			require.DirExists(t, f.data, "it is not temporary")
			continue
		}
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Dir(f.data))
			return errors.Is(err, fs.ErrNotExist)
		}, 30*time.Second, 5*time.Millisecond)
	}
	require.DirExists(t, alive.socket)
}

func TestUnprivilegedCallerRunsServers(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Nil(t, mustOwner(t).credential(), "the other tests of this package cover this")
		return
	}
	home := filepath.Dir(reachableDir(t))
	binary := filepath.Join(home, "devpg.test")
	text, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, text, 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(home, "nobody"), 0o700))
	require.NoError(t, os.Chown(filepath.Join(home, "nobody"), 65534, 65534))
	asNobody := func(c *exec.Cmd) {
		c.Dir = "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	for _, dir := range []string{filepath.Join(home, "nobody", "pg"), "-"} {
		f := spawnChild(t, binary, dir, asNobody)
		require.NoError(t, f.stdin.Close())
		require.NoError(t, f.cmd.Wait(), "it stops normally")
		f.requirePostmasterGone(t)
	}
}
