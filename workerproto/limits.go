package workerproto

import (
	"cmp"
	"net"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// The versions of the protocol that this package speaks.
const (
	MinVersion = 1
	MaxVersion = 1
)

// Limits limits the resources that peers use. Each field takes its default if it is zero.
type Limits struct {
	Dispatcher        string        // name in the welcome; default "dispatcherd"
	MaxFrame          int           // bytes of a frame without its newline; default 1 MiB, at least MinFrame
	MaxConnections    int           // connections that are open at the same time; default 16,384
	MaxSlots          int           // slots of one session; default 10,000
	MaxTypesPerSlot   int           // types of one slot; default dispatcherd.MaxSlotTypes
	MaxSlotTypes      int           // types, added up over the slots of one session; default 1,000,000
	MaxRequests       int           // open requests of a caller's session; default 4,096
	Outbox            int           // frames queued for a peer, not counting two for each slot of a worker; default 1,024
	HelloTimeout      time.Duration // from accept to a complete hello; default 5 s
	WriteTimeout      time.Duration // for one write of about 64 KiB or of one larger frame; default 10 s
	HeartbeatInterval time.Duration // silence after which a ping is sent; default 5 s
	HeartbeatTimeout  time.Duration // silence after which the session ends; default 3 intervals (15 s), at least 2
	Resume            time.Duration // how long executions may continue without a connection; 0 = not at all
	// Identify decides who a peer over TCP is: by the token of its hello, which may be "", and by the certificate of conn. If the peer may
	// not connect, objection has the reason and the remedy. Before that, a connection over TCP does not count towards MaxConnections. If
	// Identify is nil, each peer may connect. It is called from many goroutines at once.
	Identify     func(conn net.Conn, token string) (peer Peer, objection string)
	RemoteResume time.Duration // the same for remote workers, see remote; default 15 s
	// Trust returns how much longer the dispatcher can prove its lease. Executions of remote workers may
	// continue no longer. If Trust is nil, it can prove it for any time. It is called from many goroutines at once.
	Trust func() time.Duration
	// Permit decides whether a peer may serve a type. It returns "" if so. Otherwise it
	// returns a text for the worker with the reason and the remedy. It is called for
	// every type of every announced slot, from many goroutines at once. If Permit is
	// nil, everything is permitted.
	Permit func(peer Peer, typ string) (objection string)
	// Hold counts n more bytes of frames that a user has not read, or fewer if n is negative. The first bytes of each
	// connection do not count. If the user may not have so many, Hold changes nothing and returns an error. If Hold is
	// nil, bytes are not counted. It is called from many goroutines at once.
	Hold func(user string, n int) error
}

// WithDefaults returns the limits with every zero field set.
func (l Limits) WithDefaults() Limits {
	l.Dispatcher = cmp.Or(l.Dispatcher, "dispatcherd")
	setDefault(&l.MaxFrame, 1<<20)
	l.MaxFrame = max(l.MaxFrame, MinFrame)
	setDefault(&l.MaxConnections, 16384)
	setDefault(&l.MaxSlots, 10000)
	setDefault(&l.MaxTypesPerSlot, dispatcherd.MaxSlotTypes)
	setDefault(&l.MaxSlotTypes, 1_000_000)
	setDefault(&l.MaxRequests, 4096)
	setDefault(&l.Outbox, 1024)
	setDefault(&l.HelloTimeout, 5*time.Second)
	setDefault(&l.WriteTimeout, 10*time.Second)
	setDefault(&l.HeartbeatInterval, 5*time.Second)
	setDefault(&l.HeartbeatTimeout, 3*l.HeartbeatInterval)
	l.HeartbeatTimeout = max(l.HeartbeatTimeout, 2*l.HeartbeatInterval)
	setDefault(&l.RemoteResume, 15*time.Second)
	return l
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// keep returns how long the executions of a remote worker may continue from now.
func (l *Limits) keep() time.Duration {
	if l.Trust == nil {
		return l.RemoteResume
	}
	return max(0, min(l.RemoteResume, l.Trust()))
}

// parameters returns the limits for the welcome of a worker. A remote worker notices the silence of
// its dispatcher early enough to offer its executions to another one before they must stop.
func (l *Limits) parameters(remote bool) Parameters {
	p := Parameters{
		MaxFrame: l.MaxFrame, Heartbeat: l.HeartbeatInterval, Timeout: l.HeartbeatTimeout,
		MaxSlots: l.MaxSlots, MaxTypes: l.MaxTypesPerSlot, Resume: l.Resume,
	}
	if remote {
		p.Heartbeat, p.Timeout, p.Resume = min(p.Heartbeat, l.RemoteResume/5), min(p.Timeout, 2*l.RemoteResume/5), l.keep()
	}
	return p
}

// MinFrame is the smallest limit for frames. Every frame without raw JSON and without
// a list of slots fits into it, even if every byte of its text is escaped.
const MinFrame = 64 << 10
