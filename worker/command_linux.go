package worker

import "syscall"

// processAttributes put the program into a group of its own and let it die
// with the worker.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
