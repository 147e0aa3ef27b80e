package workerproto

// Spawn asks the dispatcher to insert jobs as children of a running job. The answer is
// Spawned. The children end with their parent unless they are detached.
//
//	{"op":"spawn","job":42,"attempt":1,"session":"9f…","request":1,"jobs":[{"type":"pdf","payload":{"page":1}}]}
type Spawn struct {
	sentByWorker
	Execution

	Request  int64  // chosen by the worker; the answer contains it; ≥ 1
	Detached bool   // the children continue after the end of the parent
	Jobs     []byte // JSON array of 1 to 1,000 jobs; Postgres checks the jobs
}

func (m *Spawn) members(c *codec) {
	m.begin(c, "spawn")
	integer(c, "request", &m.Request, required)
	c.boolean("detached", &m.Detached, false, optional)
	c.raw("jobs", &m.Jobs, required)
	if c.task == checking && len(m.Jobs) > 0 && m.Jobs[0] != '[' {
		c.bad(`field "jobs" must be an array`)
	}
}
