package history

import (
	"syscall"
	"time"
	"unsafe"
)

// Now returns CLOCK_MONOTONIC, which is the same in all processes of the machine.
func Now() int64 {
	var ts syscall.Timespec
	const monotonic = 1
	if _, _, errno := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME,
		monotonic,
		uintptr(unsafe.Pointer(&ts)),
		0,
	); errno != 0 { //nolint:gosec // the one way to a clock that other processes share
		return time.Now().UnixNano()
	}
	return ts.Nano()
}
