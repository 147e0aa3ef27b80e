package actor

import (
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Announced is Notified that names the row, the only one its transaction made
// pending. It is as much of a hint.
type Announced struct {
	Row contract.RowNotification
}

// An idle dispatcher claims an announced row at once, without having read it:
// the fetch would only repeat what the notification says, and is a third of
// the way from the producer to the worker. The look that every notification
// causes comes all the same, within lookPause.
func (ev Announced) apply(c *Core) {
	c.bell.ring(c.now)
	if !c.believe(&ev.Row) {
		c.fetch.missed()
		return
	}
	if f := &c.fetch; !f.owed {
		f.owed, f.nextLook = true, max(f.nextLook, c.now+lookPause)
	}
}

// believe puts an announced row where a fetch would have put it, if that is
// sure to be no worse than to fetch: the row is of the own share, a slot is
// free for it, and nothing else is known, or about to be known, to wait for
// that slot's type. It reports whether it did.
func (c *Core) believe(a *contract.RowNotification) bool {
	t, ok := c.index.Lookup(a.Type)
	if !ok || !c.clock || c.draining || !c.queuedOpen() || c.jobs.get(a.Key.ID) != nil {
		return false
	}
	if floorMS(a.Key.RunAt) > c.dbNow()+foreignPause {
		return false // producers announce what is due; clocks differ by little
	}
	if k := &c.kinds[t]; !k.held || !k.share.Owns(a.Key.ID) || !c.nothingWaits(t) {
		return false
	}
	l := &c.kinds[t].queued[a.Priority]
	if !l.cursor.Less(a.Key) {
		return false // a fetch was faster, and the row may be done already; or it was committed late
	}
	l.insert(a.Key)
	l.list++
	l.lost = 0
	l.cursor = a.Key
	c.cached++
	c.mark(t, a.Priority)
	return true
}

// nothingWaits reports whether a type has a free slot and no row of its own
// waits, by reads that are as new as the last news.
func (c *Core) nothingWaits(t slotindex.TypeID) bool {
	k := &c.kinds[t]
	if k.waiting != 0 || !c.index.HasFree(t) {
		return false
	}
	for p := range k.queued {
		if l := &k.queued[p]; l.asked || l.more || l.looked != c.fetch.looks || l.seen != c.fetch.epoch {
			return false
		}
	}
	return true
}
