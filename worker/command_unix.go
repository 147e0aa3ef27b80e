//go:build unix && !linux

package worker

import "syscall"

// processAttributes put the program into a group of its own.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
