package actor

import "github.com/dispatcherd/dispatcherd/internal/contract"

// bell decides whether producers should ring, as a network driver decides
// between interrupts and polling. While it is armed every commit that inserts
// jobs notifies. When that becomes a storm, which would cost the producers
// their commit rate, it is disarmed for a second and the lanes are polled
// instead, often enough that nobody sees the difference.
type bell struct {
	armed  bool
	asked  bool // a SetGate effect is in flight
	rings  int  // since the second began
	since  Instant
	set    Instant // when it was armed
	silent Instant // disarmed until then
}

const (
	stormRings = 200  // notifications a second that make a storm
	stormPause = 1000 // ms
	stormPoll  = 10   // ms between polls while disarmed in a storm
)

// ring counts a notification.
func (b *bell) ring(now Instant) {
	if now >= b.since+1000 {
		b.since, b.rings = now, 0
	}
	if b.rings++; b.rings >= stormRings {
		b.silent = now + stormPause
		b.since, b.rings = now, 0
	}
}

// stormy reports whether polling stands in for notifications.
func (b *bell) stormy(now Instant) bool { return now < b.silent }

// flushBell asks for a change if one is due.
func (c *Core) flushBell() {
	b := &c.bell
	want := c.index.Len() > 0 && !c.draining && !b.stormy(c.now)
	if want == b.armed || b.asked || c.outage.since(bells, c.now) {
		return
	}
	b.asked = true
	c.emit(&SetGate{Subscribed: want})
}

// wake is the instant at which a storm is taken to be over.
func (b *bell) wake(c *Core) Instant {
	if b.asked || b.armed || !b.stormy(c.now) || c.outage.since(bells, c.now) {
		return Never
	}
	return b.silent
}

func (ev GateSet) apply(c *Core) {
	c.bell.asked = false
	if ev.Verdict != contract.OK {
		c.outage.begin(bells, c)
		return
	}
	c.outage.over(bells)
	c.bell.armed = ev.Subscribed
	c.fetch.alert(c)
	if ev.Subscribed {
		c.bell.set = c.now
		c.fetch.missed() // what was inserted before the bell was armed did not ring
	}
}
