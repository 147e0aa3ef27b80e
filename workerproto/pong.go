package workerproto

// Pong answers a Ping.
//
//	{"op":"pong"}
type Pong struct {
	sentByWorker
	sentByDispatcher
	sentByCaller
}

func (*Pong) members(c *codec) { c.op("pong") }
