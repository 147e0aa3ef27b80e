package workerproto

// Pong answers a Ping.
//
//	{"op":"pong"}
type Pong struct{}

func (*Pong) fromWorker()     {}
func (*Pong) fromDispatcher() {}
func (*Pong) fromCaller()     {}

func (*Pong) appendTo(dst []byte) []byte { return append(dst, `{"op":"pong"}`...) }

func (*Pong) field(key []byte, s *scanner) { s.unknown(key) }

func (*Pong) check(*scanner) {}
