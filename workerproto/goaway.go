package workerproto

import "time"

// GoAway says that the dispatcher is about to stop, or that an operator drains it. The
// dispatcher sends no more jobs in this session. A worker with Hello.Moves connects to another
// dispatcher and offers its executions there. Any other worker may finish and report
// executions within Grace. Then the dispatcher closes the connection, and the worker
// reconnects. Only workers with Hello.Moves are told that an operator drains the dispatcher.
//
//	{"op":"goaway","reason":"dispatcher stops","grace_ms":30000}
type GoAway struct {
	sentByDispatcher

	Reason string // for users; cut to MaxMessageLength bytes
	Grace  time.Duration
}

func (m *GoAway) members(c *codec) {
	c.op("goaway")
	c.text("reason", &m.Reason, MaxMessageLength, always)
	c.millis("grace_ms", &m.Grace, optional)
}
