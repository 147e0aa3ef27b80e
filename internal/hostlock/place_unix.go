//go:build unix

package hostlock

import (
	"io/fs"
	"syscall"
)

// place returns the device and the inode of a file.
func place(info fs.FileInfo) (device, inode uint64, known bool) {
	s, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, 0, false
	}
	return uint64(s.Dev), s.Ino, true //nolint:unconvert // Dev is an int32 on macOS
}
