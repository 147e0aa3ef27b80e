package worker

import "syscall"

// processAttributes puts the program into its own process group. The kernel kills the
// program when the worker dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
