package sim

import "github.com/dispatcherd/dispatcherd/actor"

// lease is what a dispatcher knows about its own lease, by its own clock. As in
// the daemon, an error of the clock can only end it too early.
type lease struct {
	sentAt    int64 // when the heartbeat or join in flight was sent
	renewedAt int64 // when the last successful one was sent
	fenced    bool  // the core received Disowned and not yet Owned
}

func (l *lease) renewed() (back bool) {
	l.renewedAt = l.sentAt
	back, l.fenced = l.fenced, false
	return back
}

// trusted reports whether the lease can be proved now.
func (h *host) trusted() bool {
	return h.clock.read(h.world.now)-h.lease.renewedAt < int64(h.world.scale.lease)*4/5
}

// fence tells the core that the lease is lost, once per loss.
func (h *host) fence() {
	if !h.lease.fenced {
		h.lease.fenced, h.fenced = true, true
		h.step(actor.Disowned{})
	}
}

// guard fences the dispatcher when its lease has run out without an answer.
func (h *host) guard() {
	if !h.trusted() {
		h.fence()
	}
	h.plan(hostGuard, h.world.now+h.world.scale.lease/20, 0)
}

// renew tells the core that the lease holds again.
func (h *host) renew() {
	if h.lease.renewed() {
		h.step(actor.Owned{})
	}
}
