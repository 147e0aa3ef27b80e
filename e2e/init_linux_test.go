package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// zombies returns the processes that a parent has not reaped.
func zombies(t *testing.T, parent int) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, file := range files {
		text, _ := os.ReadFile(file) // fails if the process has ended
		_, after, _ := strings.Cut(string(text), ") ")
		if strings.HasPrefix(after, "Z "+strconv.Itoa(parent)+" ") {
			pids = append(pids, file)
		}
	}
	return pids
}

// A container whose only program is the worker. Each job leaves a process behind that is in no group of the worker.
func TestWorkerThatIsProcess1ReapsWhatItsCommandLeaves(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	cmd := exec.Command(programPath(t), "worker", "run", "--config", "", "--worker-socket", cfg.WorkerSocket, "--types", "x",
		"--", "sh", "-c", "setsid true >&2 & exit 65")
	cmd.Env = programEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	probe := exec.Command("true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: cmd.SysProcAttr.Cloneflags, UidMappings: cmd.SysProcAttr.UidMappings}
	if err := probe.Run(); errors.Is(err, syscall.EPERM) {
		t.Skip("this user may not create a namespace of processes")
	}
	c := startCommand(t, cmd)
	h.awaitSlots(1)
	for range 20 {
		w.await(w.insert("x", work{}), dispatcherd.Failed) // 65 is a permanent failure: the exit code has arrived
	}
	var left []string
	eventually(t, func() bool {
		left = zombies(t, c.pid())
		return len(left) == 0
	}, func() string { return fmt.Sprintf("no zombie; there are %v", left) })
	c.signal(t, syscall.SIGTERM)
	c.ends(t, 0)
}
