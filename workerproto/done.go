package workerproto

// Done ends an execution with success.
//
//	{"op":"done","job":42,"attempt":1,"session":"9f…","result":{"pages":3}}
type Done struct {
	sentByWorker
	Execution

	Result []byte // JSON; nil if there is none
}

func (m *Done) members(c *codec) {
	m.begin(c, "done")
	c.raw("result", &m.Result, optional)
}
