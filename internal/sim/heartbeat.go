package sim

import (
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

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
		h.admission.heartbeat(h, &s.tx.Heartbeat)
		h.deliver(h.lease.HeartbeatAnswered(h.time(), s.tx.Heartbeat)...)
		if s.tx.Heartbeat.LeaseLost {
			h.world.stats.Rejoined++
			h.submit(h.world.statement(opJoin, h))
			return
		}
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
	h.deliver(h.lease.Guard(h.time()))
	h.plan(hostGuard, h.world.now+moment(shell.GuardInterval(h.world.scale.lease.duration()).Microseconds()), 0)
}
