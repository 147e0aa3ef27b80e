package workerproto

// Ping asks the peer to answer. An end that has received nothing for
// Parameters.Heartbeat sends one. Any frame is an answer; a Pong has no other
// meaning.
//
//	{"op":"ping"}
type Ping struct{}

func (*Ping) fromWorker()     {}
func (*Ping) fromDispatcher() {}
func (*Ping) fromCaller()     {}

func (*Ping) members(c *codec) { c.op("ping") }
