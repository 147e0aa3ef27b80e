package actor

import (
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Step handles one event at one instant and appends the effects to fx. The effects
// are valid until the next Step. Step never waits and never fails. If the instant
// is before the previous one, Step uses the previous one.
func (c *Core) Step(now timing.Instant, ev Event, fx []effect.Effect) []effect.Effect {
	c.now = max(c.now, now)
	c.backlog.Advance(c.now)
	c.fx, c.decisions = fx, c.decisions[:0]
	clear(c.sends) // so that they keep no payload in memory
	c.sends = c.sends[:0]
	c.work, c.workBefore, c.sweepLeft, c.waitLogs = 0, c.index.Work(), c.cfg.Limits.StepWork, 0
	c.endPauses()
	c.sweep()
	c.restate()
	c.executeOrders()
	c.announceStop()
	ev.apply(c)
	t, ok := ev.(Together)
	decide := !ok || !t.Hold
	if decide {
		c.expire()
	}
	c.sweep()
	c.disconnectRejected()
	if decide {
		c.place()
	}
	c.failPinned()
	c.flush()
	fx, c.fx = c.fx, nil
	return fx
}

func (Tick) apply(*Core) {}

func (Notified) apply(c *Core) { c.backlog.Notified() }

func (ev Listening) apply(c *Core) { c.backlog.ListenerChanged(ev.On) }

func (ev GateSet) apply(c *Core) { c.backlog.GateAnswered(ev.Subscribed, ev.Verdict) }

func (ev DurationsRead) apply(c *Core) { c.durations.Read(ev.Own, ev.Others) }

func (ev Together) apply(c *Core) {
	for _, e := range ev.Events {
		e.apply(c)
		c.sweep()
	}
}

// flush sends the collected statements. Claims come before finishes and fetches,
// because slots wait for claims.
func (c *Core) flush() {
	c.flushAdopts()
	c.flushClaims()
	c.flushEnds()
	c.flushSpawns()
	c.backlog.NextRead(func(r *contract.FetchRequest) { c.emit(&effect.Fetch{Request: r}) })
	if subscribe, changed := c.backlog.NextGate(); changed {
		c.emit(&effect.SetGate{Subscribed: subscribe})
	}
}

// NextWake returns the instant by which a Tick is due, or Never.
func (c *Core) NextWake() timing.Instant {
	if c.hasWorkLeft() || c.claims.full && len(c.dirty) > 0 && len(c.claims.inFlight) < c.cfg.Limits.Claims {
		return c.now + 1
	}
	return min(c.firstAlarm(), c.controls.ends, c.claims.breaker.Wake(c.now), c.pausesEnd(), c.ends.breaker.Wake(c.now),
		c.ends.held.wake(c.now), c.adopts.breaker.Wake(c.now), c.adopts.wake(c.now), c.backlog.Wake(len(c.dirty) > 0))
}

func (ev ClusterCapacity) apply(c *Core) {
	c.otherCapacity, c.shares = ev.Capacity, ev.Shares
	c.restated, c.restateTo = 0, len(c.types)
	c.restate()
}

// restate passes the last ClusterCapacity on to the known types, until the budget is
// used up. Types that become known later get it from know.
func (c *Core) restate() {
	for until := c.budget(); c.restated < c.restateTo && c.worked() < until; c.restated++ {
		c.work++
		k, t := c.types[c.restated], slotindex.TypeID(c.restated)
		if !k.known {
			continue
		}
		c.work += jobWork
		name := c.index.Name(t)
		k.otherSlots = int32(c.otherCapacity[name])
		if !k.pause.rows() { // when the pause ends, TypeAppeared sets it
			c.backlog.SetShare(t, c.shares[name])
		}
	}
}

func (ev Fetched) apply(c *Core) {
	c.backlog.Fetched(ev.Request, ev.Result)
}

func (ev Admitted) apply(c *Core) {
	for i := range ev.Rows {
		if r := &ev.Rows[i]; c.jobs[r.Key.ID] == nil {
			c.backlog.RowAdmitted(r)
		}
	}
}

func (ev Announced) apply(c *Core) {
	c.backlog.RowNotified(&ev.Row, c.queuedOpen() && c.jobs[ev.Row.Key.ID] == nil)
}
