package sim

import "github.com/dispatcherd/dispatcherd/actor"

// lease is what a dispatcher believes about its own lease, by its own clock:
// the daemon's rule, which may only make it stop too soon.
type lease struct {
	sentAt    int64 // when the beat or join under way was begun
	renewedAt int64 // when the last one that succeeded was
	fenced    bool  // the Core was told Disowned and not yet Owned
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

// fence tells the Core, once for each loss, that the lease is gone.
func (h *host) fence() {
	if !h.lease.fenced {
		h.lease.fenced, h.fenced = true, true
		h.step(actor.Disowned{})
	}
}

// guard looks whether the lease is gone although nobody has said so.
func (h *host) guard() {
	if !h.trusted() {
		h.fence()
	}
	h.plan(hostGuard, h.world.now+h.world.scale.lease/20, 0)
}

// renew tells the Core that the lease is back.
func (h *host) renew() {
	if h.lease.renewed() {
		h.step(actor.Owned{})
	}
}
