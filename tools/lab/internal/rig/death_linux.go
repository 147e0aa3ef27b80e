package rig

import "syscall"

// DieWithParent makes the kernel kill a process when the thread that started it ends.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
