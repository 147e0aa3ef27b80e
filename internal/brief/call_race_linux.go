//go:build race

package brief

import "syscall"

// The race detector, too, hears of announced calls alone: that what was done before
// a write happened before what follows the read.

func read(fd uintptr, b []byte) (int, syscall.Errno) { return announced(syscall.Read(int(fd), b)) }

func write(fd uintptr, b []byte) (int, syscall.Errno) { return announced(syscall.Write(int(fd), b)) }

func announced(n int, err error) (int, syscall.Errno) {
	errno, _ := err.(syscall.Errno) //nolint:errorlint // it is nothing else
	return n, errno
}
