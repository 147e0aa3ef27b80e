package workerproto

import "strconv"

// Peer identifies the process at the other end of a connection, as the kernel
// reports it; -1 means unknown. Authorise by UID and GID only: a PID may be reused.
type Peer struct {
	UID, GID, PID int
}

// User names the user of the process: "uid 1001". All unknown users together are "".
func (p Peer) User() string {
	if p.UID < 0 {
		return ""
	}
	return "uid " + strconv.Itoa(p.UID)
}

var unknownPeer = Peer{UID: -1, GID: -1, PID: -1}
