package workerproto

// Ping asks for a sign of life. Whoever has heard nothing for
// Parameters.Heartbeat sends one; any frame is an answer, a Pong the least.
//
//	{"op":"ping"}
type Ping struct{}

func (*Ping) fromWorker()     {}
func (*Ping) fromDispatcher() {}
func (*Ping) fromCaller()     {}

func (*Ping) appendTo(dst []byte) []byte { return append(dst, `{"op":"ping"}`...) }

func (*Ping) field(key []byte, s *scanner) { s.unknown(key) }

func (*Ping) check(*scanner) {}
