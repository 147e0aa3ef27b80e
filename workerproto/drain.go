package workerproto

// Drain says that the worker takes no more jobs. The worker ends its executions,
// reports them, and closes the connection. A job that was sent before the frame was
// read may still arrive and is given back with a release.
//
//	{"op":"drain"}
type Drain struct{}

func (*Drain) fromWorker() {}

func (*Drain) members(c *codec) { c.op("drain") }
