package backlog

import (
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// gate is the notification gate. It decides whether producers send notifications.
// While the gate is subscribed, every transaction that inserts jobs notifies. Too
// many notifications would reduce the commit rate of the producers. The gate is then
// throttled, and the lanes are polled instead, until reads return few rows for a second.
// A network driver changes between interrupts and polling for the same reason.
//
// While a slot is free, polls take at most a fifth of the time.
type gate struct {
	subscribed bool
	asked      bool           // a change is in flight
	received   int            // notifications since the second began
	second     timing.Instant // when it began
	since      timing.Instant // when it was subscribed
	throttle   timing.Instant // throttled until then; 0 = not throttled
	found      int            // rows that reads returned while throttled, in this throttlePause
	breaker    timing.Breaker
}

const (
	throttleRate  = 200 // notifications per second
	throttlePause = time.Second
	throttleKeep  = 50 // rows in throttlePause, each in a transaction of its own at most
	throttledPoll = 10 * time.Millisecond
	shortestPoll  = 2 * time.Millisecond
	pollFactor    = 4
)

// count counts a notification.
func (g *gate) count(now timing.Instant) {
	if now >= g.second.After(time.Second) {
		g.second, g.received = now, 0
	}
	if g.received++; g.received >= throttleRate {
		g.throttle = now.After(throttlePause)
		g.second, g.received = now, 0
	}
}

// endThrottling ends a throttlePause in which reads returned few rows. Otherwise
// another one follows.
func (g *gate) endThrottling(now timing.Instant) {
	if g.throttle == 0 || g.throttled(now) {
		return
	}
	g.throttle = 0
	if g.found >= throttleKeep {
		g.throttle = now.After(throttlePause)
	}
	g.found = 0
}

// throttled reports whether polls take the place of notifications.
func (g *gate) throttled(now timing.Instant) bool { return now < g.throttle }

// NextGate reports whether a change of the gate is to be sent, and to which state.
// GateAnswered handles the answer. The gate is not subscribed while this dispatcher
// receives no notifications.
func (b *Backlog) NextGate() (subscribe, changed bool) {
	g := &b.gate
	g.endThrottling(b.now)
	subscribe = b.index.Len() > 0 && !b.draining && b.schedule.listener != notSubscribed && !g.throttled(b.now)
	if subscribe == g.subscribed && !g.asked {
		g.breaker.Succeed() // a change that has failed is not wanted any more, so it says nothing about Postgres now
	}
	if subscribe == g.subscribed || g.asked || g.breaker.Open(b.now) {
		return subscribe, false
	}
	g.asked = true
	return subscribe, true
}

// wake returns the instant at which throttling ends.
func (g *gate) wake(now timing.Instant) timing.Instant {
	if g.asked || g.subscribed || !g.throttled(now) || g.breaker.Open(now) {
		return timing.Never
	}
	return g.throttle
}

// GateAnswered handles the answer to a change of the gate.
func (b *Backlog) GateAnswered(subscribed bool, v contract.Verdict) {
	g := &b.gate
	g.asked = false
	if v != contract.OK {
		g.breaker.Fail(b.now, b.cfg.RetryStatement, b.rng)
		return
	}
	g.breaker.Succeed()
	g.subscribed = subscribed
	b.becomeActive()
	if subscribed {
		g.since = b.now
		b.scanSoon() // rows that were inserted before the change sent no notification
	}
}

// GateReset notes that the dispatcher has to join again. The state of the gate is a
// part of the dispatcher's row. Join inserts a new row, whose gate is not subscribed.
func (b *Backlog) GateReset() { b.gate.subscribed = false }

// Subscribed reports whether producers send notifications.
func (b *Backlog) Subscribed() bool { return b.gate.subscribed }
