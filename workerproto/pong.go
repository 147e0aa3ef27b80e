package workerproto

// Pong answers a Ping.
//
//	{"op":"pong"}
type Pong struct{}

func (*Pong) fromWorker()     {}
func (*Pong) fromDispatcher() {}
func (*Pong) fromCaller()     {}

func (*Pong) members(c *codec) { c.op("pong") }
