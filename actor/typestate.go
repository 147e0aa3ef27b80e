package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

const priorities = int(dispatcherd.MaxPriority) + 1

// typeState is what Core knows of one type, beside its slots and its pending rows.
type typeState struct {
	demand     [priorities]requestQueue
	requests   uint16 // bit p: demand[p] is not empty
	dirty      bool
	urgent     bool          // a request was queued since the last pass; dirty as well then
	limit      time.Duration // of an attempt whose row names none
	known      bool          // Core holds the type in the index and in the backlog
	reasons    typeWaits     // why its jobs waited
	otherSlots int32         // slots of other dispatchers that support the type
}

// waits reports whether a job of the type waits: a request, or a row that the backlog
// knows or expects.
func (c *Core) waits(t slotindex.TypeID) bool {
	return c.types[t].requests != 0 || c.backlog.Waiting(t) != 0
}

// touch makes the next pass look at a type: it may have both a free slot and a waiting
// job.
func (c *Core) touch(t slotindex.TypeID) {
	if k := &c.types[t]; !k.dirty {
		k.dirty = true
		c.dirty = append(c.dirty, t)
	}
}

// requestsChanged brings typeState.requests up to date after a change of one queue.
func (c *Core) requestsChanged(t slotindex.TypeID, p dispatcherd.Priority) {
	k := &c.types[t]
	k.requests &^= 1 << p
	if k.demand[p].first != nil {
		k.requests |= 1 << p
	}
	if c.waits(t) {
		c.touch(t)
	}
}

// hold keeps a type known while Core has something to remember of it.
func (c *Core) hold(name string) slotindex.TypeID {
	t := c.index.Hold(name)
	for int(t) >= len(c.types) {
		c.types = append(c.types, typeState{})
	}
	k := &c.types[t]
	if k.known {
		c.index.Drop(t)
		return t
	}
	k.known = true
	k.otherSlots = int32(c.otherCapacity[name])
	k.limit = c.cfg.Timeouts[name]
	c.known++
	c.backlog.TypeAppeared(t, c.shares[name])
	return t
}

// letGo forgets a type that has neither slots nor jobs in hand.
func (c *Core) letGo(t slotindex.TypeID) {
	k := &c.types[t]
	if !k.known || c.jobs.OfType(t) > 0 || c.index.Capacity(t) > 0 {
		return
	}
	c.backlog.TypeGone(t)
	*k = typeState{dirty: k.dirty, urgent: k.urgent}
	c.known--
	c.index.Drop(t)
}
