//go:build race

package brief

import "syscall"

// The race detector, too, hears of announced calls alone: that what was done before
// a write happened before what follows the read.

func read(fd uintptr, b []byte) (int, syscall.Errno) { return announced(syscall.Read(int(fd), b)) }

func write(fd uintptr, b []byte) (int, syscall.Errno) { return announced(syscall.Write(int(fd), b)) }

func peek(fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, err := syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	if err == nil {
		_, err = syscall.Read(int(fd), nil) // of nothing: for the race detector, which hears of no Recvfrom
	}
	return announced(n, err)
}

func announced(n int, err error) (int, syscall.Errno) {
	errno, _ := err.(syscall.Errno) //nolint:errorlint // it is nothing else
	return n, errno
}
