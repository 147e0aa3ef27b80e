package workerproto

import (
	"net"
	"syscall"
)

// PeerOf returns the process at the other end of a connection. It asks the kernel
// (SO_PEERCRED). A wrapper must have the method NetConn, as in crypto/tls.
func PeerOf(conn net.Conn) Peer {
	if wrapper, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wrapper.NetConn()
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return unknownPeer
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return unknownPeer
	}
	peer := unknownPeer
	err = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			peer = Peer{UID: int(cred.Uid), GID: int(cred.Gid), PID: int(cred.Pid)}
		}
	})
	if err != nil {
		return unknownPeer
	}
	return peer
}
