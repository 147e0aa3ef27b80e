package actor

import "github.com/dispatcherd/dispatcherd"

// Reported carries what a worker says about jobs that go on running. It frees
// nothing. A session's reports reach the loop before its later results.
type Reported struct {
	Session dispatcherd.SessionID
	Reports []Report
}

// Report is one word about a running attempt.
type Report struct {
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Partial bool   // a piece of the output; otherwise how far the job is
	JSON    []byte // what is handed on
}

// apply hands on what is said about live attempts by the session that runs
// them; the rest is answered like a late result.
func (ev Reported) apply(c *Core) {
	for i := range ev.Reports {
		r := &ev.Reports[i]
		j := c.jobs.get(r.Job)
		switch {
		case j == nil || j.attempt != r.Attempt || j.stage != running:
			c.stats.Stale++
			c.emit(c.memory.stale.add(Stale{Session: ev.Session, Job: r.Job, Attempt: r.Attempt}))
		case j.told != ev.Session:
			c.emit(&NotHeld{Session: ev.Session, Job: r.Job, Attempt: r.Attempt})
		case r.Partial:
			c.emit(c.memory.partial.add(Partial{Job: r.Job, Attempt: r.Attempt, Mode: j.mode, JSON: r.JSON}))
		default:
			c.emit(c.memory.progress.add(Progress{Job: r.Job, Attempt: r.Attempt, Mode: j.mode, JSON: r.JSON}))
		}
	}
}

// Impatient tells that a caller wants to wait no longer for a worker that
// supports the type. A request that runs, or whose type has slots by now, goes
// on.
type Impatient struct {
	Job dispatcherd.JobID
}

func (ev Impatient) apply(c *Core) {
	if c.Bereft(ev.Job) {
		c.unsupported(c.jobs.get(ev.Job))
	}
}

// Offered reports whether a slot supports a type, here or, as far as they have told,
// at another dispatcher.
func (c *Core) Offered(name string) bool {
	t, known := c.index.Lookup(name)
	return known && c.index.Capacity(t) > 0 || c.elsewhere[name] > 0
}

// Bereft reports whether a request waits and no slot supports its type.
func (c *Core) Bereft(id dispatcherd.JobID) bool {
	j := c.jobs.get(id)
	return j != nil && j.stage == waiting && c.index.Capacity(j.typ) == 0
}
