package daemon

import (
	"maps"
	"net"
	"time"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// burst is the allowance of a user who has not connected for a while. After a restart of the dispatcher all workers of a host
// reconnect at the same time.
const burst = 2 * time.Second

// maxUsers bounds the users and addresses that are counted at the same time. On a Unix socket only a process that may
// change its user id can reach the bound. Further users are then rejected.
const maxUsers = 16_384

// connectionLimit counts the connections of each user.
type connectionLimit struct {
	gap time.Duration // time that one connection takes from the user's allowance
	// paid says for each user or network when the allowance is complete again. Users whose time has
	// passed need no entry.
	paid map[string]time.Time
}

func newConnectionLimit(perSecond int) *connectionLimit {
	return &connectionLimit{gap: time.Second / time.Duration(perSecond), paid: map[string]time.Time{}}
}

// admit reports whether the user may open a connection now, and counts it if so.
func (l *connectionLimit) admit(user string, now time.Time) bool {
	at, known := l.paid[user]
	if !known && len(l.paid) >= maxUsers {
		maps.DeleteFunc(l.paid, func(_ string, at time.Time) bool { return !at.After(now) })
		if len(l.paid) >= maxUsers {
			return false
		}
	}
	if at.Before(now) {
		at = now
	}
	if at = at.Add(l.gap); at.Sub(now) > burst {
		return false
	}
	l.paid[user] = at
	return true
}

// rateListener rejects the connections of users that connect too fast. A user may open as many connections per second as
// the limit says, and after a pause twice as many at once. Accept passes further connections to reject, which must not
// block and must close them. On other systems than Linux all processes count as one user. Only one goroutine may call Accept.
type rateListener struct {
	net.Listener

	limit  *connectionLimit
	reject func(net.Conn, workerproto.Peer)
}

// Accept implements net.Listener.
func (l *rateListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := workerproto.PeerOf(conn)
		user := peer.User()
		if peer.Address != "" {
			user = prefixOf(conn.RemoteAddr()).String()
		}
		if l.limit.admit(user, time.Now()) {
			return conn, nil
		}
		l.reject(conn, peer)
	}
}
