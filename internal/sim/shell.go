package sim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

func (h *host) sendFrame(session dispatcherd.SessionID, f frame) {
	if session == 0 {
		return // the worker of the execution has not reconnected
	}
	c := h.world.conns[session-1]
	switch {
	case c.hostEnd.closed || c.hostIncarnation != h.incarnation || c.hangUpFor != 0:
	case c.handshaking:
		c.afterWelcome = append(c.afterWelcome, f)
	default:
		h.world.write(c, &c.down, f)
	}
}

// heartbeat sends a heartbeat.
func (h *host) heartbeat() {
	h.heartbeats++ // one that is planned is void
	h.beating, h.adopted = true, false
	i, s := h.world.statement(opHeartbeat, h)
	s.capacity = h.lease.BeginHeartbeat(h.time(), h.core)
	h.submit(i, s)
}

// heartbeatDone handles the answer to a heartbeat.
func (h *host) heartbeatDone(s *statement) {
	if s.verdict == contract.OK {
		h.deliver(h.lease.HeartbeatAnswered(h.time(), s.tx.Heartbeat)...)
		if s.tx.Heartbeat.LeaseLost {
			h.world.stats.Rejoined++
			h.submit(h.world.statement(opJoin, h))
			return
		}
	}
	h.planHeartbeat()
}

// planHeartbeat plans the next heartbeat after one or a Join has ended.
func (h *host) planHeartbeat() {
	h.beating = false
	if h.adopted {
		h.heartbeat()
		return
	}
	h.plan(hostHeartbeat, h.world.now+moment(h.lease.Pause().Microseconds()), h.heartbeats)
}

// guard checks whether the lease can still be proved.
func (h *host) guard() {
	h.deliver(h.lease.Guard(h.time()))
	h.plan(hostGuard, h.world.now+moment(shell.GuardInterval(h.world.scale.lease.duration()).Microseconds()), 0)
}

func typeNumber(name string) int { return int(name[len(name)-1] - '0') }

// Arguments of hostNotification, besides the id of a job to cancel.
const (
	rowsInserted     = 0
	listenerLost     = -1 // the connection of the listener broke
	listenerRestored = -2 // the listener has reconnected
	rowInserted      = -3 // row 1 alone became pending; the next lower number is row 2, and so on
)

// notify sends a notification without a row to every listening dispatcher.
func (w *world) notify() { w.notifyRow(rowsInserted) }

// notifyRow sends a notification to every listening dispatcher.
func (w *world) notifyRow(notification int32) {
	w.stats.Notified++
	for _, h := range w.hosts {
		if !h.up || h.core == nil || w.postgres.cut {
			continue
		}
		at := w.now + w.random.span(50, 500)
		if w.opt.Break == WithoutPoll && w.random.below(10) > 0 {
			continue
		}
		if w.has(Notify) {
			switch w.random.below(8) {
			case 0, 1:
				w.stats.LostNotifications++
				continue
			case 2:
				at += w.random.span(0, second)
			case 3:
				h.plan(hostNotification, at+w.random.span(0, second/10), notification)
			}
		}
		h.plan(hostNotification, at, notification)
	}
}

func (h *host) notified(notification int32) {
	w := h.world
	switch {
	case notification == rowsInserted:
		h.deliver(shell.JobsNotified(nil))
	case notification <= rowInserted:
		id := dispatcherd.JobID(rowInserted - notification + 1)
		r := &w.job(id).insert
		h.deliver(shell.JobsNotified(&contract.RowNotification{
			Type: r.Type, Priority: r.Priority, Key: r.Key(),
		}))
	case notification == listenerLost:
		h.deliver(shell.ListenerState(false))
		h.plan(hostNotification, w.now+w.random.span(second/10, 2*second), listenerRestored)
	case notification == listenerRestored:
		h.deliver(shell.ListenerState(true))
	default:
		h.deliver(shell.CancelNotified(dispatcherd.JobID(notification)))
	}
}
