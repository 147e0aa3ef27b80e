package workerproto

// Stale answers a report that changed nothing, because its attempt is no longer current:
// another attempt has the job, or the job has ended. If the execution still runs, the
// worker may stop it, because the result is not needed.
//
//	{"op":"stale","job":42,"attempt":1,"session":"9f…"}
type Stale struct {
	sentByDispatcher
	Execution
}

func (m *Stale) members(c *codec) {
	m.begin(c, "stale")
}
