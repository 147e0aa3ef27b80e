package devpg

import (
	"bufio"
	"context"
	"fmt"
	"io"
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

// The test binary runs itself as a caller of Start when these are set.
const (
	childDir      = "DEVPG_TEST_CHILD_DIR" // "-" = ephemeral
	childWatchdog = "DEVPG_TEST_CHILD_WATCHDOG"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

// child starts a server, says where, and holds it until its input ends.
func child(dir string) int {
	o := Options{Dir: dir, watchdog: os.Getenv(childWatchdog) != ""}
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

// kill9 ends the child without giving it a chance.
func (f *family) kill9(t *testing.T) {
	t.Helper()
	require.NoError(t, f.cmd.Process.Signal(syscall.SIGKILL))
	require.Error(t, f.cmd.Wait())
}

func (f *family) requirePostmasterGone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return !runsIn(f.postmaster, f.data) }, 30*time.Second, 5*time.Millisecond)
}

func TestKillingTheCallerEndsThePostmaster(t *testing.T) {
	for _, guard := range []struct{ name, watchdog string }{{"native", ""}, {"watchdog", "1"}} {
		t.Run(guard.name, func(t *testing.T) {
			dir := reachableDir(t)
			f := spawnChild(t, "", dir, func(c *exec.Cmd) { c.Env = append(c.Env, childWatchdog+"="+guard.watchdog) })
			require.True(t, runsIn(f.postmaster, f.data))
			f.kill9(t)
			f.requirePostmasterGone(t)
			require.NoFileExists(t, filepath.Join(f.data, "postmaster.pid"), "it went down in order")
		})
	}
}

func TestARestartRightAfterAKillWaitsForThePredecessor(t *testing.T) {
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

func TestAPostmasterKilledWithItsCallerIsReplaced(t *testing.T) {
	dir := reachableDir(t)
	f := spawnChild(t, "", dir, nil)
	require.NoError(t, syscall.Kill(f.postmaster, syscall.SIGKILL))
	f.kill9(t)
	require.FileExists(t, filepath.Join(f.data, "postmaster.pid"), "no process could clean up")
	s := start(t, Options{Dir: dir})
	require.Equal(t, 1, ask[int](t, s.URL("postgres"), "SELECT 1"))
}

func TestAStrangerWithThePostmastersPidIsNotHarmed(t *testing.T) {
	dir := reachableDir(t)
	require.NoError(t, start(t, Options{Dir: dir}).Stop())
	stranger := exec.Command("/bin/sh", "-c", "read -r _")
	hold, err := stranger.StdinPipe()
	require.NoError(t, err)
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: mustOwner(t).credential()} // Postgres believes its own user's pids
	require.NoError(t, stranger.Start())
	pidFile := filepath.Join(dir, "data", "postmaster.pid")
	require.NoError(t, os.WriteFile(pidFile, fmt.Appendf(nil, "%d\n%s/data\n0\n5432\n", stranger.Process.Pid, dir), 0o600))

	s := start(t, Options{Dir: dir})
	require.Equal(t, 1, ask[int](t, s.URL("postgres"), "SELECT 1"))
	require.NoError(t, hold.Close())
	require.EqualError(t, stranger.Wait(), "exit status 1", "it ended by itself at the end of its input, not by a signal")
}

func mustOwner(t *testing.T) owner {
	t.Helper()
	o, err := chooseOwner("")
	require.NoError(t, err)
	return o
}

func TestTheNextCallerSweepsWhatAKilledOneLeft(t *testing.T) {
	f := spawnChild(t, "", "-", nil)
	dead := filepath.Dir(f.data)
	alive := start(t, Options{Ephemeral: true})
	require.DirExists(t, dead, "a directory in use is not swept")
	f.kill9(t)
	f.requirePostmasterGone(t)
	start(t, Options{Ephemeral: true})
	require.NoDirExists(t, dead)
	require.DirExists(t, alive.dir)
}

func TestAnUnprivilegedCallerNeedsNothingSpecial(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Nil(t, mustOwner(t).credential(), "every other test of this package has shown it already")
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
		require.NoError(t, f.cmd.Wait(), "it stops in order")
		f.requirePostmasterGone(t)
	}
}

func TestRootIsToldWhenTheServersUserCannotGetIn(t *testing.T) {
	closed, err := os.MkdirTemp("/tmp", "devpg-closed-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(closed) })
	o := owner{uid: 12345, gid: 12345, name: "user nobody", drop: true}
	require.EqualError(t, o.canReach(closed), "the private Postgres runs as user nobody, who may not enter "+
		closed+": choose another directory, such as /var/lib/dispatcherd")
	require.NoError(t, o.canReach("/tmp"))
	o.drop = false
	require.NoError(t, o.canReach(closed), "only a caller who gives rights away can lose access")
}
