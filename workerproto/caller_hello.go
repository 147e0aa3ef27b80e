package workerproto

// CallerHello is the first frame of a connection of a caller. It is sent once.
//
//	{"op":"hello","versions":[1,1],"caller":"web-1"}
type CallerHello struct {
	sentByCaller

	MinVersion, MaxVersion int
	Caller                 string // at most dispatcherd.MaxWorkerLength bytes, for people; may be empty
	Worker                 string // empty; only a worker at the wrong socket sends it, and is refused
	Token                  string // proves who the caller is; sent over TCP only
}

func (m *CallerHello) members(c *codec) {
	c.op("hello")
	c.versions(&m.MinVersion, &m.MaxVersion)
	c.text("caller", &m.Caller, unbounded, optional)
	c.text("worker", &m.Worker, unbounded, optional)
	symbol(c, "token", &m.Token, maxBearer, optional)
}
