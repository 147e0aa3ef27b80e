package workerproto

// Ping asks the peer to answer. An end sends a Ping when it has received nothing for
// Parameters.Heartbeat. Any frame counts as an answer. A Pong is an answer without
// other content.
//
//	{"op":"ping"}
type Ping struct {
	sentByWorker
	sentByDispatcher
	sentByCaller
}

func (*Ping) members(c *codec) { c.op("ping") }
