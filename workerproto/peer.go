package workerproto

import (
	"fmt"
	"net"
)

// Peer identifies the process at the other end of a connection. On a Unix socket the kernel
// reports its ids; -1 means unknown. Authorise by UID and GID only: a PID may be reused.
// Over TCP a token or a certificate proves who it is.
type Peer struct {
	UID, GID, PID int

	Address     string // of the process, over TCP; on a Unix socket it is ""
	Token       string // the name of its token
	Certificate string // the name in its certificate; "" if it has sent a token
}

// PeerOf returns what is known of the process at the other end of a connection without its help: on a Unix socket its ids, over TCP
// its address.
func PeerOf(conn net.Conn) Peer {
	conn = Unwrapped(conn)
	peer := kernelPeer(conn)
	if conn != nil {
		if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			peer.Address = tcp.IP.String()
		}
	}
	return peer
}

// Unwrapped returns the connection below a wrapper, which must have the method NetConn, as in crypto/tls.
func Unwrapped(conn net.Conn) net.Conn {
	if wrapper, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return wrapper.NetConn()
	}
	return conn
}

// User names the user of the process: "uid 1001", "cert gpu-1", or the name of the token, which contains no space. All unknown users
// together are "".
func (p Peer) User() string {
	switch {
	case p.Token != "":
		return p.Token
	case p.Certificate != "":
		return "cert " + p.Certificate
	case p.UID >= 0:
		return fmt.Sprintf("uid %d", p.UID)
	}
	return ""
}

// String says who the process is, for messages. A token and a certificate have the form of --allow.
func (p Peer) String() string {
	switch {
	case p.Token != "":
		return "token:" + p.Token
	case p.Certificate != "":
		return "cert:" + p.Certificate
	case p.Address != "":
		return "the unknown user at " + p.Address
	}
	return fmt.Sprintf("uid %d, gid %d", p.UID, p.GID)
}

var unknownPeer = Peer{UID: -1, GID: -1, PID: -1}
