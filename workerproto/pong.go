package workerproto

import "time"

// Pong answers a Ping.
//
//	{"op":"pong"}
//	{"op":"pong","keep_ms":15000}
type Pong struct {
	sentByWorker
	sentByDispatcher
	sentByCaller

	// Keep is sent to a remote worker: for this time after the worker sent the ping, its executions may
	// continue, whatever happens to the connection. 0 = no longer than earlier frames have said.
	Keep time.Duration
}

func (m *Pong) members(c *codec) {
	c.op("pong")
	c.millis("keep_ms", &m.Keep, optional)
}
