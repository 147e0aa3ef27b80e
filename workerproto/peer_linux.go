package workerproto

import (
	"net"
	"syscall"
)

// kernelPeer asks the kernel for the process at the other end of a connection (SO_PEERCRED).
func kernelPeer(conn net.Conn) Peer {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return unknownPeer
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return unknownPeer
	}
	peer := unknownPeer
	_ = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			peer = Peer{UID: int(cred.Uid), GID: int(cred.Gid), PID: int(cred.Pid)}
		}
	}) // after an error the peer is unknown
	return peer
}
