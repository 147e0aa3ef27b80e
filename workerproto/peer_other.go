//go:build !linux

package workerproto

import "net"

// kernelPeer returns an unknown peer, because it is implemented on Linux only.
func kernelPeer(net.Conn) Peer { return unknownPeer }
