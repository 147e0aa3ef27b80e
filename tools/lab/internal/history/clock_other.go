//go:build !linux

package history

import "time"

// Now returns the wall clock, the only clock that processes share on this system.
func Now() int64 { return time.Now().UnixNano() }
