package controller

import "time"

// clock estimates the database clock between heartbeats with the monotonic clock of this process.
type clock struct {
	set  bool
	at   time.Time // local
	then time.Time // database clock at that time
}

// setBack is by how much a clock that was set back differs at least.
const setBack = time.Second

// read updates the estimate after a read of the database clock, and reports
// whether that clock was set back.
func (c *clock) read(database, local time.Time) (back bool) {
	back = c.set && database.Before(c.estimate(local).Add(-setBack))
	*c = clock{true, local, database}
	return back
}

// estimate returns the database clock at a local time.
func (c *clock) estimate(local time.Time) time.Time { return c.then.Add(local.Sub(c.at)) }
