package actor

import "github.com/dispatcherd/dispatcherd/slotindex"

// Step takes one event at one instant and appends the effects to fx. They are
// valid until the next Step. It never waits and never fails. An instant before
// the last one counts as the last one.
func (c *Core) Step(now Instant, ev Event, fx []Effect) []Effect {
	c.now = max(c.now, now)
	c.backlog.Advance(c.now)
	c.fx, c.decisions = fx, c.decisions[:0]
	c.memory.reset()
	ev.apply(c)
	t, ok := ev.(Together)
	decide := !ok || !t.Hold
	if decide {
		c.expire()
	}
	c.disconnectRejected()
	if decide {
		c.place()
	}
	c.flush()
	fx, c.fx = c.fx, nil
	return fx
}

func (ev Together) apply(c *Core) {
	for _, e := range ev.Events {
		e.apply(c)
	}
}

func (Tick) apply(*Core) {}

// flush sends what has gathered: claims first, since a slot waits for each.
func (c *Core) flush() {
	c.flushAdopts()
	c.flushClaims()
	c.flushEnds()
	c.flushReads()
	c.flushGate()
}

// NextWake returns the instant by which a Tick is due, or Never.
func (c *Core) NextWake() Instant {
	return min(c.alarms.first(), c.claims.breaker.Wake(c.now), c.ends.breaker.Wake(c.now),
		c.adopts.breaker.Wake(c.now), c.adopts.locked.Wake(c.now), c.backlog.Wake(len(c.dirty) > 0))
}

func (ev ClusterCapacity) apply(c *Core) {
	c.otherCapacity, c.shares = ev.Capacity, ev.Shares
	for t := range c.types {
		if k := &c.types[t]; k.known {
			name := c.index.Name(slotindex.TypeID(t))
			k.otherSlots = int32(ev.Capacity[name])
			c.backlog.SetShare(slotindex.TypeID(t), ev.Shares[name])
		}
	}
}

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

// failing reports whether some kind of statement has failed recently and not succeeded
// since.
func (c *Core) failing() bool {
	return c.backlog.Failing() || c.claims.breaker.Failing(c.now) || c.ends.breaker.Failing(c.now) || c.adopts.breaker.Failing(c.now)
}
