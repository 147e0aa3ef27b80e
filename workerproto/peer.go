package workerproto

import "net"

// Peer is who stands at the other end of a connection, as the kernel says; -1
// where it does not. Authorise by UID and GID only: a PID may be reused.
type Peer struct {
	UID, GID, PID int
}

var unknownPeer = Peer{UID: -1, GID: -1, PID: -1}

// PeerOf asks the kernel who stands at the other end of a connection.
func PeerOf(conn net.Conn) Peer { return peerOf(conn) }
