package workerproto

// ReasonTimeout is the reason of a cancel when the timeout of the attempt has
// expired. Every other reason is text for people only.
const ReasonTimeout = "timeout"

// Cancel asks the worker to stop an execution. The worker still ends the execution
// with a done, fail or release. Until then the slot is busy.
//
//	{"op":"cancel","job":42,"attempt":1,"session":"9f…","reason":"cancelled by the caller"}
type Cancel struct {
	sentByDispatcher
	Execution

	Reason string // for people, or ReasonTimeout; cut to MaxMessageLength bytes
}

func (m *Cancel) members(c *codec) {
	m.begin(c, "cancel")
	c.text("reason", &m.Reason, MaxMessageLength, optional)
}
