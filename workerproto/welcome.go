package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Welcome answers a valid Hello and begins the session.
//
//	{"op":"welcome","version":1,"session":"9f…","dispatcher":"d1",
//	 "limits":{"max_frame":1048576,"heartbeat_ms":5000,"timeout_ms":15000,"max_slots":10000,"max_types":4096}}
type Welcome struct {
	sentByDispatcher

	Version    int    // the highest that both sides speak
	Session    string // the nonce, 128 random bits as 32 hexadecimal digits
	Dispatcher string // its name, for people
	Limits     Parameters
	Resumed    []Resumed // the executions of Hello.Running that continue; the worker stops the others
}

// Resumed identifies an execution that the dispatcher resumed. The worker reports it in
// the new session.
type Resumed struct {
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
}

// Parameters are the limits that the peer must know.
type Parameters struct {
	MaxFrame    int           // bytes of a frame, newline excluded
	Heartbeat   time.Duration // silence after which to ping
	Timeout     time.Duration // silence after which to close the connection
	MaxSlots    int           // slots of one session
	MaxTypes    int           // types of one slot
	MaxRequests int           // open requests of a caller's session; 0 in the welcome of a worker
	// How long executions may continue without a connection; 0 = not at all. For a remote worker the time
	// begins when the worker sends the hello, and each Pong extends it.
	Resume time.Duration
}

func (m *Welcome) members(c *codec) {
	c.op("welcome")
	integer(c, "version", &m.Version, required)
	symbol(c, "session", &m.Session, maxNonce, required)
	c.text("dispatcher", &m.Dispatcher, MaxMessageLength, optional)
	c.nested("limits", &m.Limits)
	list(c, "resumed", &m.Resumed, Resumed{}, listed[Resumed], optional)
}

func (r *Resumed) members(c *codec) {
	number(c, "job", &r.Job, anyNumber, always)
	integer(c, "attempt", &r.Attempt, always)
}

func (p *Parameters) members(c *codec) {
	integer(c, "max_frame", &p.MaxFrame, always)
	c.millis("heartbeat_ms", &p.Heartbeat, always)
	c.millis("timeout_ms", &p.Timeout, always)
	integer(c, "max_requests", &p.MaxRequests, optional)
	if c.task == encoding && p.MaxRequests > 0 {
		return // the following members are for workers
	}
	integer(c, "max_slots", &p.MaxSlots, always)
	integer(c, "max_types", &p.MaxTypes, always)
	c.millis("resume_ms", &p.Resume, optional)
}
