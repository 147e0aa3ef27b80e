//go:build !linux

package workerproto

import "net"

// PeerOf knows no peer on this system.
func PeerOf(net.Conn) Peer { return unknownPeer }
