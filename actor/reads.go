package actor

// flushReads sends the fetches that the backlog wants.
func (c *Core) flushReads() {
	c.reads = c.backlog.NextRead(&c.jobs, c.reads[:0])
	for _, r := range c.reads {
		c.emit(c.memory.fetch.add(Fetch{Request: r}))
	}
}

// flushGate sends a change of the notification gate.
func (c *Core) flushGate() {
	if subscribe, changed := c.backlog.NextGate(); changed {
		c.emit(&SetGate{Subscribed: subscribe})
	}
}

func (ev Fetched) apply(c *Core) { c.backlog.Fetched(ev.Request, ev.Result, &c.jobs) }

func (ev GateSet) apply(c *Core) { c.backlog.GateAnswered(ev.Subscribed, ev.Verdict) }

func (ev Listening) apply(c *Core) { c.backlog.ListenerChanged(ev.On) }

func (Notified) apply(c *Core) { c.backlog.Notified() }

func (ev Announced) apply(c *Core) {
	c.backlog.RowNotified(&ev.Row, c.queuedOpen() && c.jobs.get(ev.Row.Key.ID) == nil)
}

// putBack returns the row of a job to its lane: it is pending again.
func (c *Core) putBack(j *job) { c.backlog.PutBack(j.typ, j.priority, j.row.key) }
