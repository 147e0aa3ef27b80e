package workerproto

// Drain says that the worker takes no more jobs. The worker ends its executions,
// reports them, and closes the connection. A job that the dispatcher sent before it
// read this frame may still arrive. The worker gives this job back with a release.
//
//	{"op":"drain"}
type Drain struct{ sentByWorker }

func (*Drain) members(c *codec) { c.op("drain") }
