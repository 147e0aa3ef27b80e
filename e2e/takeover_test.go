package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// promptly bounds the time from the start of a dispatcher to the end of the first job on a busy
// machine. Without the lock file the time would be the lease, which is a minute in these tests.
const promptly = 10 * time.Second

// living returns the number of dispatchers whose lease no successor has ended.
func (w *world) living() int {
	w.t.Helper()
	return w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE incarnation IS NOT NULL AND lost_at IS NULL`)
}

// lockFile is the file that a daemon locks.
func lockFile(cfg daemon.Config) string { return cfg.WorkerSocket + ".lock" }

// A dispatcher is killed with kill -9 and started again, with and without another dispatcher.
// The running jobs continue, and a new job starts at once.
func TestSuccessorOfAKilledDispatcherTakesOverAtOnce(t *testing.T) {
	for _, peers := range []int{0, 1} {
		t.Run(fmt.Sprint("with ", peers, " others"), func(t *testing.T) {
			w := newWorldAlone(t)
			cfg := w.config("d")
			cfg.Lease = time.Minute
			process := w.serve(cfg)
			for i := range peers {
				other := w.config(fmt.Sprint("peer", i))
				other.Lease = time.Minute
				w.serve(other)
			}
			w.worker("w", cfg.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
			ids := w.gated(2)
			process.kill()
			started := time.Now()
			process = w.serve(cfg)
			w.await(w.insert("x", work{}), dispatcherd.Done)
			took := time.Since(started)
			t.Logf("from the start to the end of a new job: %v", took)
			require.Less(t, took, promptly)
			require.Contains(t, process.errors.text(), "the previous dispatcher on this socket was killed")
			require.Equal(t, 1+peers, w.living())
			for _, id := range ids {
				w.seen.open(t, w.seen.start(t, id, 1))
			}
			w.requireOnce(ids)
		})
	}
}

// Workers may not continue without a dispatcher, so the jobs are released at once.
func TestJobsOfAKilledDispatcherAreReleasedAtOnceWithoutResume(t *testing.T) {
	w := newWorldAlone(t)
	cfg := w.config("d")
	cfg.Lease = time.Minute
	process := w.serve(cfg, "--resume", "0s")
	doomed := w.worker("doomed", cfg.WorkerSocket, oneSlot("x"))
	id := w.gated(1)[0]
	process.kill()
	doomed.kill()
	w.serve(cfg, "--resume", "0s")
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	started := time.Now()
	w.seen.open(t, w.seen.start(t, id, 2))
	require.Less(t, time.Since(started), promptly)
	require.Equal(t, 1, w.await(id, dispatcherd.Done).Crashes)
}

func TestStoppedDispatcherIsNotDeclaredLost(t *testing.T) {
	w := newWorldAlone(t)
	cfg := w.config("d")
	h := w.start(cfg)
	require.NoError(t, h.stop())
	again := w.start(cfg)
	require.NotContains(t, again.log.text(), "was killed")
}

// requireLeaseAndJobs requires that a living dispatcher still has its lease and executes jobs.
func (w *world) requireLeaseAndJobs(h *host, dispatchers int) {
	w.t.Helper()
	require.Equal(w.t, dispatchers, w.living())
	require.Equal(
		w.t,
		1,
		w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE id = $1 AND incarnation IS NOT NULL AND lost_at IS NULL`, h.ID()),
	)
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.NotContains(w.t, h.log.text(), "the lease is lost")
}

// A test copies the state directory of a living dispatcher and starts another dispatcher on the
// copy.
func TestCopiedLockFileDoesNotEndALivingDispatcher(t *testing.T) {
	w := newWorldAlone(t)
	cfg, copied := w.config("d"), w.config("copied")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	text, err := os.ReadFile(lockFile(cfg))
	require.NoError(t, err)
	require.Contains(t, string(text), "incarnation")
	require.NoError(t, os.WriteFile(lockFile(copied), text, 0o600))
	second := w.start(copied)
	require.NotContains(t, second.log.text(), "was killed")
	w.requireLeaseAndJobs(h, 2)
}

// The directory is moved, and a copy takes its place. The lock of the original belongs to
// another inode.
func TestCopyInPlaceOfTheDirectoryDoesNotEndALivingDispatcher(t *testing.T) {
	w := newWorldAlone(t)
	cfg := w.config("d")
	cfg.WorkerSocket = filepath.Join(w.dir, "state", "w.sock")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	text, err := os.ReadFile(lockFile(cfg))
	require.NoError(t, err)
	state := filepath.Dir(cfg.WorkerSocket)
	require.NoError(t, os.Rename(state, state+".moved"))
	require.NoError(t, os.Mkdir(state, 0o700))
	require.NoError(t, os.WriteFile(lockFile(cfg), text, 0o600))
	copied := cfg
	copied.Name, copied.APISocket = "copied", filepath.Join(w.dir, "copied-api.sock")
	second := w.start(copied)
	require.NotContains(t, second.log.text(), "was killed")
	w.requireLeaseAndJobs(h, 2)
}

// The record was written by another host on a shared file system, on which locks may not be
// enforced. The boot id differs.
func TestRecordOfAnotherHostDoesNotEndADispatcher(t *testing.T) {
	w := newWorldAlone(t)
	cfg := w.config("d")
	cfg.Lease = time.Minute
	w.serve(cfg).kill()
	text, err := os.ReadFile(lockFile(cfg))
	require.NoError(t, err)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("this system has no boot id")
	}
	foreign := strings.Replace(string(text), strings.TrimSpace(string(boot)), "9b2f6d0c-1c35-4b53-8b0e-7d5a0f0c8e22", 1)
	require.NotEqual(t, string(text), foreign)
	require.NoError(t, os.WriteFile(lockFile(cfg), []byte(foreign), 0o600)) // the file keeps its inode
	second := w.serve(cfg)
	require.NotContains(t, second.errors.text(), "was killed")
	require.Equal(t, 2, w.living(), "according to the record that the second one reads")
}

// A living dispatcher in another network namespace holds the lock. The second dispatcher does
// not start.
func TestDispatcherInAnotherNetworkNamespaceHoldsTheLock(t *testing.T) {
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
		t.Skipf("no right to create a network namespace: %v: %s", err, out)
	}
	w := newWorldAlone(t)
	cfg := w.config("d")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	cmd := exec.Command(
		"unshare",
		"--net",
		programPath(t),
		"serve",
		"--config",
		"",
		"--database-url",
		w.dsn,
		"--worker-socket",
		cfg.WorkerSocket,
		"--api-socket",
		filepath.Join(w.dir, "other-api.sock"),
	)
	cmd.Env = programEnv()
	second := startCommand(t, cmd)
	second.ends(t, exit.Conflict)
	w.requireLeaseAndJobs(h, 1)
}
