//go:build !linux || race

package brief

import "net"

// Conn returns conn itself. The race detector, too, knows what is announced alone:
// that what was done before a write happened before what follows the read.
func Conn(conn net.Conn) net.Conn { return conn }
