package devpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/background"
)

// watchdogScript shuts a postmaster down when standard input ends, waits for its end, and removes the temporary directories. Only
// the caller's process holds the other end of the pipe. Therefore the input ends when that process ends, also by SIGKILL.
const watchdogScript = `read -r _; kill -INT "$1"
while kill -0 "$1" && [ -e ` + pidFile + ` ]; do sleep 1; done
shift; rm -rf "$@"`

// startWatchdog starts the watchdog of a postmaster.
func (s *Server) startWatchdog(postmaster int) error {
	s.watchdog = exec.Command("/bin/sh", append([]string{"-c", watchdogScript, "sh", strconv.Itoa(postmaster)}, s.temporary...)...)
	s.prepare(s.watchdog)
	s.watchdog.Stdout, s.watchdog.Stderr = nil, nil
	s.watchdog.SysProcAttr.Setpgid = true // signals of the terminal are for the caller
	_, err := s.watchdog.StdinPipe()
	if err == nil {
		err = s.watchdog.Start()
	}
	if err != nil {
		s.watchdog = nil
		return fmt.Errorf("starting the watchdog of Postgres: %w", err)
	}
	return nil
}

// stopWatchdog kills the watchdog before its input ends, so that it sends no signal. The
// postmaster must have been reaped.
func (s *Server) stopWatchdog() {
	if s.watchdog != nil {
		_ = s.watchdog.Process.Kill() // fails only if it has ended
		_ = s.watchdog.Wait()         // closes its input
		s.watchdog = nil
	}
}

// pidFile is the file in which a postmaster writes its pid.
const pidFile = "data/postmaster.pid"

// reclaim waits until no other postmaster uses the data. This process holds the lock, so
// the process that started such a postmaster has ended.
func reclaim(ctx context.Context, root *os.Root) error {
	for pid := postmasterOf(root); pid != 0; pid = postmasterOf(root) {
		_ = syscall.Kill(pid, syscall.SIGINT) // fails only if it has ended; harmless if it shuts down already
		if !background.Pause(ctx, 10*time.Millisecond) {
			return fmt.Errorf("the Postgres server with pid %d still holds %s: %w", pid, root.Name(), context.Cause(ctx))
		}
	}
	// Postgres itself would accept any process of the same user that has this pid.
	if err := root.Remove(pidFile); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("removing a stale lock file: %w", err)
	}
	return nil
}

// postmasterOf returns the pid of the live postmaster of the data, 0 if there is none. It
// ignores zombies, and other processes that have got the pid.
func postmasterOf(root *os.Root) int {
	text, _ := readSmall(root, pidFile) // without a file there is no pid
	line, _, _ := strings.Cut(text, "\n")
	pid, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), "-"))
	if err != nil || pid <= 1 || !runsIn(pid, filepath.Join(root.Name(), "data")) {
		return 0
	}
	return pid
}

// runsIn reports whether the process is alive and was started for dir. It reads /proc, and asks
// ps on systems without it.
func runsIn(pid int, dir string) bool {
	if _, err := os.Stat("/proc/self/cmdline"); err == nil {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline") // a zombie has none
		return err == nil && strings.Contains(string(line), "\x00-D\x00"+dir+"\x00")
	}
	out, err := output("ps", "-o", "stat=,command=", "-p", strconv.Itoa(pid))
	return err == nil && !strings.HasPrefix(out, "Z") && strings.Contains(out, " -D "+dir+" ")
}
