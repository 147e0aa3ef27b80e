package e2e

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill a process when the test binary ends.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
