package brief

import "net"

// Descriptor is that of the socket under a connection that Inward has returned.
func Descriptor(conn net.Conn) (fd int, ok bool) {
	c, ok := conn.(*inward)
	if !ok {
		return -1, false
	}
	return c.fd, true
}
