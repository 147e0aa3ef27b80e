package actor

// apply hands on what a session reports about attempts that it executes.
func (ev Reported) apply(c *Core) {
	for i := range ev.Reports {
		r := &ev.Reports[i]
		j := c.jobs.get(r.Job)
		switch {
		case !c.isCurrent(j, ev.Session, r.Job, r.Attempt):
		case r.Partial:
			c.emit(c.memory.partial.add(Partial{Job: r.Job, Attempt: r.Attempt, Mode: j.mode, JSON: r.JSON}))
		default:
			c.emit(c.memory.progress.add(Progress{Job: r.Job, Attempt: r.Attempt, Mode: j.mode, JSON: r.JSON}))
		}
	}
}
