package workerproto

// Queued is the first event of a request: its place among the waiting jobs.
//
//	{"op":"queued","id":7,"rank":2,"waiting":5}
type Queued struct {
	sentByDispatcher

	ID      int64
	Rank    int    // place among the waiting jobs of its type; 1 is the next
	Waiting int    // waiting jobs of its type that the dispatcher knows
	Via     string // as in Answer
}

func (m *Queued) members(c *codec) {
	c.op("queued")
	integer(c, "id", &m.ID, required)
	integer(c, "rank", &m.Rank, always)
	integer(c, "waiting", &m.Waiting, always)
	symbol(c, "via", &m.Via, maxSymbol, optional)
}
