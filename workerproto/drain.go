package workerproto

// Drain says that the worker wants no more jobs. What it runs it ends and
// reports; then it hangs up. A job that was on its way may still arrive and is
// given back with a release.
//
//	{"op":"drain"}
type Drain struct{}

func (*Drain) fromWorker() {}

func (*Drain) appendTo(dst []byte) []byte { return append(dst, `{"op":"drain"}`...) }

func (*Drain) field(key []byte, s *scanner) { s.unknown(key) }

func (*Drain) check(*scanner) {}
