package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// crash is kill -9: memory is lost and sockets close. Statements in flight may
// still arrive at Postgres.
func (h *host) crash() {
	w := h.world
	h.incarnation++
	h.up, h.stopped, h.core, h.exitStage = false, false, nil, 0
	h.inbox = h.inbox[:0]
	for l := range h.pgConns {
		w.abandon(h.pgConns[l])
		h.pgConns[l] = h.pgConns[l][:0]
	}
	for _, c := range h.conns {
		w.closeHostEnd(w.conns[c])
	}
	h.conns = h.conns[:0]
	again := w.random.span(second/100, 3*second)
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
	w.plan(task{at: w.now + w.random.span(second/100, 2*w.scale.lease), kind: hostContinue, who: h.id})
}

// resume is SIGCONT. The tasks that arrived meanwhile run in one burst. Frames
// keep the order of their connection, because they are queued there, and a
// connection to Postgres has one answer at a time.
func (h *host) resume() {
	w := h.world
	if !h.stopped {
		return
	}
	h.stopped = false
	if w.has(Clocks) && w.random.below(2) == 0 { // a monotonic clock does not advance while its machine is suspended
		h.jumpClock(-w.random.below(int64(second)))
	}
	for _, t := range h.inbox {
		t.at = w.now + w.random.span(0, millisecond)
		w.plan(t)
	}
	h.inbox = h.inbox[:0]
}

// jumpClock moves the clock of the host.
func (h *host) jumpClock(us int64) {
	w := h.world
	h.clock.set(w.now, h.clock.read(w.now)+us, h.clock.ppm)
	h.alarmAt = actor.Never
	if h.core != nil && !h.stopped {
		h.setAlarm()
	}
}

// terminate is SIGTERM: drain, interrupt, leave and exit, in the order of the
// daemon.
func (h *host) terminate() {
	if !h.up || h.stopped || h.core == nil || h.exitStage > 0 {
		return
	}
	h.world.stats.Restarts++
	h.exitStage, h.stageBegan, h.terminatedAt = 1, h.world.now, h.world.now
	h.step(actor.Drained{})
	h.plan(hostStage, h.world.now+millisecond, 0)
}

// handOver is SIGTERM of a dispatcher that hands its running jobs over.
func (h *host) handOver() {
	if !h.up || h.stopped || h.core == nil || h.exitStage > 0 {
		return
	}
	h.handsOver = true
	h.terminate()
}

// The stages of an exit after Drained.
const (
	draining = 1 + iota
	interrupted
	left
)

func (h *host) advanceExit() {
	w := h.world
	if h.handsOver {
		h.handOverStage()
		return
	}
	limit := w.scale.grace
	if h.exitStage == interrupted {
		limit = second
	}
	if h.core.Idle() || w.now-h.stageBegan > limit {
		h.exitStage++
		h.stageBegan = w.now
		if h.exitStage == left {
			h.submit(w.statement(opLeave, h))
			return
		}
		h.revoked = true
		h.step(actor.Interrupted{})
	}
	h.plan(hostStage, w.now+10*millisecond, 0)
}

// exit ends the process after it has left.
func (h *host) exit() { h.crash() }

// maxHangUpDelay bounds the time between a HangUp effect and the closing of the
// connection. Frames that were queued before are written first.
const maxHangUpDelay = 50 * millisecond

// hangUpSession handles a HangUp effect for a job. Until the connection closes,
// the worker does not know of it, and its frames are still read. The delay is a
// hash and draws no random number.
func (h *host) hangUpSession(c *conn, job dispatcherd.JobID) {
	w := h.world
	c.hangUpFor = job
	w.stats.HungUp++
	h.plan(hostCloseSession, w.now+moment(mix(0x70617274, uint64(w.now)^uint64(job))%uint64(maxHangUpDelay)), c.number)
}

// closeSession closes the connection of an ended session.
func (h *host) closeSession(c *conn) {
	if c.hostEnd.closed || c.hostIncarnation != h.incarnation {
		return
	}
	c.ignoredCancel = c.hangUpFor
	h.disconnect(c)
}

// closeSilent ends a session whose worker was silent for too long.
func (h *host) closeSilent(c *conn) {
	if c.hostEnd.closed || c.hostIncarnation != h.incarnation || !h.world.workers[c.worker].stopped {
		return
	}
	h.world.closeHostEnd(c)
	h.conns = slices.DeleteFunc(h.conns, func(o int32) bool { return o == c.number })
	h.unregister(c)
}

// The stages of a hand-over after draining.
const (
	closing  = interrupted + 10 + iota // connections close, ends are recorded
	flushing                           // statements in flight are answered
	exiting
)

// handOverStage follows the stop of the daemon.
func (h *host) handOverStage() {
	w := h.world
	limit := w.scale.grace
	if h.exitStage > draining {
		limit = second
	}
	if h.world.opt.Break == WithoutGrace {
		limit = 0
	}
	waited := w.now-h.stageBegan > limit
	switch {
	case h.exitStage == draining && (h.core.Idle() || waited):
		h.stageAt(closing)
		if h.trusted() {
			h.step(actor.HandedOver{})
		} else {
			h.revoked = true
			h.step(actor.Interrupted{})
		}
		h.closeAll()
	case h.exitStage == closing && (h.core.Idle() || waited):
		h.stageAt(flushing)
		h.noHeartbeat = true
	case h.exitStage == flushing && !h.statementsPending():
		h.stageAt(exiting)
		h.leaveTable()
		return
	}
	h.plan(hostStage, w.now+10*millisecond, 0)
}

// statementsPending reports whether statements are in flight.
func (h *host) statementsPending() bool {
	return slices.ContainsFunc(h.pgConns[:], func(l []int32) bool { return len(l) > 0 })
}

func (h *host) stageAt(stage int) { h.exitStage, h.stageBegan = stage, h.world.now }

// closeAll closes all connections.
func (h *host) closeAll() {
	w := h.world
	for _, n := range slices.Clone(h.conns) {
		if c := w.conns[n]; !c.hostEnd.closed {
			w.judge.disconnects(w, h, c)
			h.disconnect(c)
		}
	}
}

func (h *host) leaveTable() {
	if h.core.Stats().Left > 0 || h.core.Adopting() {
		h.submit(h.world.statement(opHandOver, h))
		return
	}
	h.submit(h.world.statement(opLeave, h))
}

// handedOver ends the process. A failed hand-over is tried once more, because
// its connection may have died long before.
func (h *host) handedOver(s *statement) {
	if s.verdict == contract.OK || h.exitStage > exiting {
		h.exit()
		return
	}
	h.exitStage++
	h.submit(h.world.statement(opHandOver, h))
}
