//go:build !linux

package brief

import "net"

// Conn returns conn itself.
func Conn(conn net.Conn) net.Conn { return conn }

// Settle has nothing to do.
func Settle(net.Conn) {}
