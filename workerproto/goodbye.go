package workerproto

// Goodbye is the last frame of a worker that continues no execution after the session. Without it, a
// dispatcher does not know whether a remote worker whose connection has ended still runs its jobs.
//
//	{"op":"goodbye"}
type Goodbye struct{ sentByWorker }

func (*Goodbye) members(c *codec) { c.op("goodbye") }
