package workerproto

// Partial is a piece of the output of an execution. The dispatcher forwards the pieces
// to the waiting caller in order and does not store them.
//
//	{"op":"partial","job":-7,"attempt":1,"session":"9f…","data":{"line":"hello"}}
type Partial struct {
	sentByWorker
	Execution

	Data []byte // JSON
}

func (m *Partial) members(c *codec) {
	m.begin(c, "partial")
	c.raw("data", &m.Data, required)
}
