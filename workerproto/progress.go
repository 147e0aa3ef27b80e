package workerproto

// Progress reports how much of an execution is done, in units of the worker's
// choice.
//
//	{"op":"progress","job":42,"attempt":1,"session":"9f…","done":3,"total":10,"message":"page 3"}
type Progress struct {
	sentByWorker
	Execution

	Done, Total int64  // ≥ 0; Total 0 = unknown
	Message     string // cut to MaxMessageLength bytes
}

func (m *Progress) members(c *codec) {
	m.begin(c, "progress")
	integer(c, "done", &m.Done, always)
	integer(c, "total", &m.Total, always)
	c.text("message", &m.Message, MaxMessageLength, optional)
}
