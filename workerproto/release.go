package workerproto

// Release gives an unfinished job back. The worker sends it when it stops, or when a
// job arrives after the worker has sent a drain or slot_remove. The job is pending
// again at once, and the attempt does not count.
//
//	{"op":"release","job":42,"attempt":1,"session":"9f…","reason":"worker stops"}
type Release struct {
	sentByWorker
	Execution

	Reason string // for people; cut to MaxMessageLength bytes
}

func (m *Release) members(c *codec) {
	m.begin(c, "release")
	c.text("reason", &m.Reason, MaxMessageLength, optional)
}
