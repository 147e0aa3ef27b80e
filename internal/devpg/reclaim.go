package devpg

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// reclaim makes the data free for a new server. The caller holds the lock, so
// a postmaster that still runs lost its own caller and is on its way down.
func reclaim(ctx context.Context, data string) error {
	pid := postmasterOf(data)
	if pid != 0 {
		// Harmless if it is shutting down already, needed if it missed its caller's death.
		_ = syscall.Kill(pid, syscall.SIGINT)
	}
	for postmasterOf(data) != 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the Postgres server with pid %d still holds %s: %w", pid, data, context.Cause(ctx))
		}
	}
	// Postgres itself believes any process of the same user that has this pid.
	if err := os.Remove(filepath.Join(data, "postmaster.pid")); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("removing a stale lock file: %w", err)
	}
	return nil
}

// postmasterOf returns the pid of the live postmaster of the data, 0 if there
// is none. A zombie and a stranger who got the pid do not count.
func postmasterOf(data string) int {
	f, err := os.Open(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // only read
	line, _ := bufio.NewReader(f).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "-")))
	if err != nil || pid <= 1 || !runsIn(pid, data) {
		return 0
	}
	return pid
}
