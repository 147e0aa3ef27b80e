package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
)

// die is kill -9: the memory is gone, the kernel closes the sockets, what is
// on the way to Postgres may still arrive.
func (h *host) die() {
	w := h.world
	h.life++
	h.up, h.stopped, h.core, h.leaving = false, false, nil, 0
	h.inbox = h.inbox[:0]
	for l := range h.links {
		w.abandon(h.links[l])
		h.links[l] = h.links[l][:0]
	}
	for _, c := range h.conns {
		w.closeHostEnd(w.conns[c])
	}
	h.conns = h.conns[:0]
	again := w.dice.span(second/100, 3*second)
	if w.healing {
		again = second / 100
	}
	w.plan(task{at: w.now + again, kind: hostStart, who: h.id})
}

// pause is SIGSTOP.
func (h *host) pause() {
	w := h.world
	if !h.up || h.stopped {
		return
	}
	w.stats.Stops++
	h.stopped = true
	w.plan(task{at: w.now + w.dice.span(second/100, 2*w.scale.lease), kind: hostContinue, who: h.id})
}

// resume is SIGCONT. What came meanwhile is taken in one burst; only what came
// on one connection keeps its order, and does so by itself: frames are queued
// at their connection, and a connection to Postgres has one answer at a time.
func (h *host) resume() {
	w := h.world
	if !h.stopped {
		return
	}
	h.stopped = false
	if w.has(Clocks) && w.dice.below(2) == 0 { // the monotonic clock stood still in a suspended machine
		h.shift(-w.dice.below(int64(second)))
	}
	for _, t := range h.inbox {
		t.at = w.now + w.dice.span(0, millisecond)
		w.plan(t)
	}
	h.inbox = h.inbox[:0]
}

// shift lets the host's clock jump.
func (h *host) shift(us int64) {
	w := h.world
	h.clock.set(w.now, h.clock.read(w.now)+us, h.clock.ppm)
	h.armedAt = actor.Never
	if h.core != nil && !h.stopped {
		h.setAlarm()
	}
}

// terminate is SIGTERM: drain, interrupt, leave, exit, in the daemon's order.
func (h *host) terminate() {
	if !h.up || h.stopped || h.core == nil || h.leaving > 0 {
		return
	}
	h.world.stats.Restarts++
	h.leaving, h.staged, h.asked = 1, h.world.now, h.world.now
	h.step(actor.Drained{})
	h.plan(hostStage, h.world.now+millisecond, 0)
}

// handOver is SIGTERM of a dispatcher whose workers may go on without it.
func (h *host) handOver() {
	if !h.up || h.stopped || h.core == nil || h.leaving > 0 {
		return
	}
	h.hands = true
	h.terminate()
}

// The stages of an exit after Drained.
const (
	draining = 1 + iota
	interrupted
	left
)

func (h *host) stage() {
	w := h.world
	if h.hands {
		h.handStage()
		return
	}
	limit := w.scale.grace
	if h.leaving == interrupted {
		limit = second
	}
	if h.core.Idle() || w.now-h.staged > limit {
		h.leaving++
		h.staged = w.now
		if h.leaving == left {
			h.submit(w.statement(opLeave, h))
			return
		}
		h.revoked = true
		h.step(actor.Interrupted{})
	}
	h.plan(hostStage, w.now+10*millisecond, 0)
}

// exit is the end of the process after it has left, or tried to.
func (h *host) exit() { h.die() }

// longestParting is how long it may take until a hang-up has reached the worker:
// what was to be said before it is written first.
const longestParting = 50 * millisecond

// part hangs up because of a job. Until the connection is closed the worker does
// not know, and what it says is still read. How long that is costs no throw of the
// dice.
func (h *host) part(c *conn, guilty dispatcherd.JobID) {
	w := h.world
	c.parting = guilty
	w.stats.HungUp++
	h.plan(hostPart, w.now+moment(mix(0x70617274, uint64(w.now)^uint64(guilty))%uint64(longestParting)), c.number)
}

// parted is the end of such a connection.
func (h *host) parted(c *conn) {
	if c.hostEnd.closed || c.hostLife != h.life {
		return
	}
	c.guilty = c.parting
	h.refuse(c)
}

// hangUpOnSilent ends a session whose worker has not answered for too long.
func (h *host) hangUpOnSilent(c *conn) {
	if c.hostEnd.closed || c.hostLife != h.life || !h.world.workers[c.worker].stopped {
		return
	}
	h.world.closeHostEnd(c)
	h.conns = slices.DeleteFunc(h.conns, func(o int32) bool { return o == c.number })
	h.unregister(c)
}
