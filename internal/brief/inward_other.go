//go:build !linux

package brief

import "net"

// Inward returns conn itself.
func Inward(conn net.Conn) net.Conn { return conn }
