package devpg

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// parentDeathSignal: the kernel itself tells a child that its parent died.
const parentDeathSignal = true

// bindToParent makes the command receive sig when this process dies. The
// kernel watches the starting thread, not the process, so the calling
// goroutine is pinned to its thread until the returned function runs, which
// must not be before the command has ended.
func bindToParent(cmd *exec.Cmd, sig syscall.Signal) (unlock func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr.Pdeathsig = sig
	return runtime.UnlockOSThread
}

// runsIn reports whether the process is alive and was started for dir. A
// zombie has no command line.
func runsIn(pid int, dir string) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.Contains(string(line), "\x00-D\x00"+dir+"\x00")
}
