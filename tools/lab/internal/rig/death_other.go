//go:build !linux

package rig

import "syscall"

// DieWithParent does nothing: only Linux kills a process when the thread that started it ends.
func DieWithParent() *syscall.SysProcAttr { return nil }
