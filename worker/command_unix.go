//go:build unix && !linux

package worker

import "syscall"

// processAttributes puts the program into its own process group.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
