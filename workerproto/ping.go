package workerproto

// Ping asks the peer to answer. An end sends a Ping when it has received nothing for
// Parameters.Heartbeat. Any frame counts as an answer. A remote worker sends a Ping at this interval also
// while frames arrive, because only the Pong says how long its executions may continue.
//
//	{"op":"ping"}
type Ping struct {
	sentByWorker
	sentByDispatcher
	sentByCaller
}

func (*Ping) members(c *codec) { c.op("ping") }
