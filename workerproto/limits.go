package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// The versions of the protocol that this package speaks.
const (
	MinVersion = 1
	MaxVersion = 1
)

// Limits limits the resources that peers use. A zero field takes its default.
type Limits struct {
	Dispatcher        string        // name in the welcome; default "dispatcherd"
	MaxFrame          int           // bytes of a frame without its newline; 1 MiB, at least 64 KiB
	MaxConnections    int           // open at once; 16,384
	MaxSlots          int           // of one session; 10,000
	MaxTypesPerSlot   int           // dispatcherd.MaxSlotTypes
	MaxRequests       int           // open requests of a caller's session; 4,096
	Outbox            int           // frames queued for a worker, in addition to two for each of its slots; 1,024
	HelloTimeout      time.Duration // from accept to a complete hello; 5 s
	WriteTimeout      time.Duration // for one write of at most about 64 KiB or one frame; 10 s
	HeartbeatInterval time.Duration // silence after which a ping is sent; 5 s
	HeartbeatTimeout  time.Duration // silence after which the session ends; 15 s, at least twice the interval
	Resume            time.Duration // how long executions may continue without a connection; 0 = not at all
	// Permit returns "" if a peer may serve a type, otherwise the reason and what to
	// do, for the worker. It is called for every type of every announced slot, from
	// many goroutines at once. nil permits everything.
	Permit func(peer Peer, typ string) (objection string)
}

// WithDefaults returns the limits with every zero field set.
func (l Limits) WithDefaults() Limits {
	if l.Dispatcher == "" {
		l.Dispatcher = "dispatcherd"
	}
	setDefault(&l.MaxFrame, 1<<20)
	l.MaxFrame = max(l.MaxFrame, MinFrame)
	setDefault(&l.MaxConnections, 16384)
	setDefault(&l.MaxSlots, 10000)
	setDefault(&l.MaxTypesPerSlot, dispatcherd.MaxSlotTypes)
	setDefault(&l.MaxRequests, 4096)
	setDefault(&l.Outbox, 1024)
	setDefault(&l.HelloTimeout, 5*time.Second)
	setDefault(&l.WriteTimeout, 10*time.Second)
	setDefault(&l.HeartbeatInterval, 5*time.Second)
	setDefault(&l.HeartbeatTimeout, 3*l.HeartbeatInterval)
	l.HeartbeatTimeout = max(l.HeartbeatTimeout, 2*l.HeartbeatInterval)
	return l
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// parameters returns the limits that the welcome contains.
func (l Limits) parameters() Parameters {
	return Parameters{
		MaxFrame: l.MaxFrame, Heartbeat: l.HeartbeatInterval, Timeout: l.HeartbeatTimeout,
		MaxSlots: l.MaxSlots, MaxTypes: l.MaxTypesPerSlot, Resume: l.Resume,
	}
}

// callerParameters is the part for callers.
func (l Limits) callerParameters() Parameters {
	return Parameters{MaxFrame: l.MaxFrame, Heartbeat: l.HeartbeatInterval, Timeout: l.HeartbeatTimeout, MaxRequests: l.MaxRequests}
}

// MinFrame is the smallest limit for frames: every frame without raw JSON and
// without a list of slots fits, even with every byte of its text escaped.
const MinFrame = 64 << 10
