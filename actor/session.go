package actor

import (
	"cmp"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// session is one connection of a worker.
type session struct {
	id           dispatcherd.SessionID
	worker       string
	slots        []slotindex.Ref      // in order of registration
	draining     bool                 // slots that it may still register take no jobs
	withdrawn    bool                 // some slot may be withdrawn and still busy
	fingerprint  contract.Fingerprint // of its nonce
	notResumable bool                 // what it runs ends with it
	undecided    int                  // its resume offers that are not decided
}

func (ev Registered) apply(c *Core) {
	if _, ended := c.disconnected[ev.Session]; ended {
		return // a job sent to such a slot would count the end of the connection as a crash
	}
	s := c.sessions[ev.Session]
	if s == nil {
		s = &session{id: ev.Session, worker: ev.Worker}
		c.sessions[ev.Session] = s
	}
	if ev.Fingerprint != 0 {
		s.fingerprint, s.notResumable = ev.Fingerprint, ev.NotResumable
	}
	if reason := c.roomFor(ev.Slots, 0); reason != "" {
		c.rejectSession(s, &RejectSlots{Session: s.id, Reason: reason})
		return
	}
	c.register(s, ev.Slots)
	decided := c.considerOffers(s, ev.Offers)
	if c.draining && decided {
		c.emit(&GoAway{Session: s.id})
	}
}

func (ev Unregistered) apply(c *Core) {
	delete(c.disconnected, ev.Session)
	if s := c.sessions[ev.Session]; s != nil {
		c.endSession(s, false)
	}
}

// endSession forgets a session with all its slots. Disconnected tells that this
// dispatcher ends it, so that its jobs are not blamed.
func (c *Core) endSession(s *session, disconnected bool) {
	delete(c.sessions, s.id)
	c.dropOffers(s)
	refs := s.slots
	s.slots = nil
	end := sessionEnd{session: s, disconnected: disconnected, suspects: c.suspects(refs)}
	for _, ref := range refs {
		j, withdrawn := c.slots[ref].job, c.index.IsDraining(ref)
		c.slots[ref].job = nil
		c.removeSlot(ref)
		if j != nil {
			j.slot = noSlot
			c.workerLost(j, &end, withdrawn)
		}
	}
}

// sessionIDs returns the open sessions in order.
func (c *Core) sessionIDs() []dispatcherd.SessionID {
	ids := make([]dispatcherd.SessionID, 0, len(c.sessions))
	for id := range c.sessions { // order-free: sorted below
		ids = append(ids, id)
	}
	slices.SortFunc(ids, cmp.Compare)
	return ids
}
