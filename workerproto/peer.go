package workerproto

// Peer identifies the process at the other end of a connection, as the kernel
// reports it; -1 means unknown. Authorise by UID and GID only: a PID may be reused.
type Peer struct {
	UID, GID, PID int
}

var unknownPeer = Peer{UID: -1, GID: -1, PID: -1}
