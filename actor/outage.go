package actor

// outage spaces statements while Postgres does not answer. Decisions that need
// no row go on meanwhile.
type outage struct {
	failures int
	retryAt  Instant
}

// since reports whether statements must wait.
func (o *outage) since(now Instant) bool { return o.failures > 0 && now < o.retryAt }

// begin notes one more failure and when to try again. Nothing is sent during
// the wait, so what fails then was sent before it and is no further failure.
func (o *outage) begin(c *Core) {
	if o.since(c.now) {
		return
	}
	o.retryAt = c.now.after(c.cfg.Outage.Delay(o.failures, c.rng))
	o.failures++
}

// over notes that Postgres answered.
func (o *outage) over() { o.failures = 0 }
