package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// crash is kill -9: memory is lost and sockets close. Statements in flight may
// still arrive at Postgres.
func (h *host) crash() {
	w := h.world
	h.incarnation++
	h.up, h.stopped, h.core, h.stop, h.sentAway = false, false, nil, nil, false
	h.inbox = h.inbox[:0]
	h.admission.exit()
	h.settlement.exit()
	h.admission, h.settlement = nil, nil
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
	w.plan(task{at: w.now + w.random.span(second/100, 4*w.scale.lease), kind: hostContinue, who: h.id})
}

// resume is SIGCONT. The tasks that arrived meanwhile run in one burst. Frames
// keep the order of their connection, because they are queued there, and a
// connection to Postgres has one answer at a time.
func (h *host) resume() {
	w := h.world
	if !h.stopped {
		return
	}
	h.stopped, h.since = false, w.now
	if w.has(Clocks) && w.wrongHostClocks() && w.random.below(2) == 0 { // a monotonic clock does not advance while its machine is suspended
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
	h.alarmAt = timing.Never
	if h.core != nil && !h.stopped {
		h.setAlarm()
	}
}

// terminate is SIGTERM. The dispatcher hands its running jobs over to the next one, or
// interrupts them.
func (h *host) terminate(handsOver bool) {
	if !h.up || h.stopped || h.core == nil || h.stop != nil {
		return
	}
	w := h.world
	w.stats.Restarts++
	h.terminatedAt = h.time()
	h.stop = &shell.Stop{Grace: w.scale.grace.duration(), Settle: second.duration(), Resume: handsOver}
	if w.opt.Break == WithoutGrace {
		h.stop.Grace = 0
	}
	h.deliver(h.stop.Begin(h.time()))
	h.plan(hostStage, w.now+millisecond, 0)
}

// advanceStop carries out the stages of a stop, as the daemon does.
func (h *host) advanceStop() {
	before := h.stop.Stage()
	h.deliver(h.stop.Next(h.time(), h.core.Idle(), h.lease.Trusted(h.time())))
	if h.stop.Stage() == shell.Settling && before < shell.Settling {
		h.closeAll()
	}
	if h.departing() && !slices.ContainsFunc(h.pgConns[:], func(l []int32) bool { return len(l) > 0 }) {
		h.depart()
		return
	}
	h.plan(hostStage, h.world.now+10*millisecond, 0)
}

// departing reports whether the loop has ended, and heartbeats with it. Answers of
// statements are dropped.
func (h *host) departing() bool { return h.stop != nil && h.stop.Stage() == shell.Leaving }

// works reports whether the process runs and does not stop.
func (h *host) works() bool { return h.core != nil && !h.stopped && h.stop == nil }

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

// depart gives up the lease.
func (h *host) depart() {
	h.departures++
	o := opLeave
	if shell.HandsOver(h.core) {
		o = opHandOver
	}
	h.submit(h.world.statement(o, h))
}

// departed ends the process, or gives up the lease again.
func (h *host) departed(s *statement) {
	if s.verdict == contract.OK || h.departures == shell.Departures {
		h.crash()
		return
	}
	h.depart()
}

// maxHangUpDelay bounds the time between a HangUp effect and the closing of the
// connection. Frames that were queued before are written first.
const maxHangUpDelay = 50 * millisecond

// hangUpSession handles a HangUp effect for a job. Until the connection closes,
// the worker does not know about the end of its session, and the host still
// reads its frames. The delay is a hash, so it draws no random number.
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
	silent := h.world.remote.keep > 0 || h.world.workers[c.worker].stopped
	if c.hostEnd.closed || c.hostIncarnation != h.incarnation || !silent || !h.isSilent(c) {
		return
	}
	h.world.closeHostEnd(c)
	h.conns = slices.DeleteFunc(h.conns, func(o int32) bool { return o == c.number })
	h.unregister(c)
}

// heartbeat sends a heartbeat.
func (h *host) heartbeat() {
	h.heartbeats++ // makes a planned heartbeat void
	h.beating, h.adopted, h.beatBegun = true, false, h.time()
	i, s := h.world.statement(opHeartbeat, h)
	s.heartbeat = h.lease.BeginHeartbeat(h.time(), h.core, actor.Capacities(h.core))
	h.submit(i, s)
}

// heartbeatDone handles the answer to a heartbeat.
func (h *host) heartbeatDone(s *statement) {
	if s.verdict == contract.OK {
		h.admission.heartbeat(&s.tx.Heartbeat)
		h.settlement.heartbeat(&s.tx.Heartbeat)
		h.deliver(h.lease.HeartbeatAnswered(h.time(), s.tx.Heartbeat)...)
		if s.tx.Heartbeat.LeaseLost {
			h.world.stats.Rejoined++
			h.submit(h.world.statement(opJoin, h))
			return
		}
		if s.tx.Released > 0 {
			h.deliver(actor.Notified{})
		}
		h.shareDurations()
	}
	h.planHeartbeat(s.verdict != contract.OK)
}

// planHeartbeat plans the next heartbeat after one or a Join has ended.
func (h *host) planHeartbeat(failed bool) {
	h.beating = false
	if h.adopted {
		h.heartbeat()
		return
	}
	h.plan(hostHeartbeat, h.world.now+moment(h.lease.Pause(failed).Microseconds()), h.heartbeats)
}

// guard checks whether the lease can still be proved.
func (h *host) guard() {
	h.deliver(h.lease.Guard(h.time())...)
	h.plan(hostGuard, h.world.now+moment(shell.GuardInterval(h.world.scale.lease.duration()).Microseconds()), 0)
}
