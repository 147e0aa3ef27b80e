package workerproto

// Partial is a piece of the output, for a waiting caller. Pieces are forwarded in
// order and not stored.
//
//	{"op":"partial","job":-7,"attempt":1,"session":"9f…","data":{"line":"hello"}}
type Partial struct {
	Execution
	Data []byte // JSON
}

func (*Partial) fromWorker() {}

func (m *Partial) members(c *codec) {
	m.begin(c, "partial")
	c.raw("data", &m.Data, required)
}
