package backlog

import "github.com/dispatcherd/dispatcherd/internal/contract"

// Notified notes a notification: rows may have become pending.
func (b *Backlog) Notified() {
	b.gate.count(b.now)
	b.scanSoon()
}

// ListenerChanged notes whether notifications are received.
func (b *Backlog) ListenerChanged(on bool) {
	b.schedule.listener = notSubscribed
	if on {
		b.schedule.listener = subscribed
		b.schedule.scanPending = true // notifications were missed meanwhile
	}
	b.becomeActive()
	b.rowsMayHaveCome()
}

// RowNotified notes a notification that names the only row of its transaction. An idle
// dispatcher claims that row without reading it: the fetch would only repeat what the
// notification says, and takes a third of the time from the INSERT to the worker. The
// scan that follows every notification follows this one, too, after scanPause.
// claimable tells that queued jobs may be placed now, and that the row is not in hand.
func (b *Backlog) RowNotified(n *contract.RowNotification, claimable bool) {
	b.gate.count(b.now)
	if !claimable || !b.accept(n) {
		b.scanSoon()
		return
	}
	if s := &b.schedule; !s.scanPending {
		s.scanPending, s.nextScan = true, max(s.nextScan, b.now.After(scanPause))
	}
}

// accept makes a row from a notification a candidate if that is certainly as good as a
// fetch: the row is local, a slot is free for it, and nothing else waits, or may be
// found to wait, for the slots of the type. It reports whether it did.
func (b *Backlog) accept(n *contract.RowNotification) bool {
	t, ok := b.index.Lookup(n.Type)
	if !ok || !b.clock.known || b.draining || int(t) >= len(b.types) {
		return false
	}
	if floorMS(n.Key.RunAt) > b.DBNow()+clockTolerance {
		return false
	}
	k := &b.types[t]
	if !k.known || !k.share.Owns(n.Key.ID) || !b.index.HasFree(t) || !k.nothingWaits(&b.schedule) {
		return false
	}
	l := &k.local[n.Priority]
	if !l.cursor.Less(n.Key) {
		return false // a fetch was faster, and the job may have ended already; or it was committed late
	}
	l.insert(n.Key)
	l.newBatch()
	l.cursor = n.Key
	b.cached++
	b.update(t, n.Priority)
	return true
}

// clockTolerance is how far, in milliseconds, the database clock may seem to be ahead of
// a producer that notifies of a row that is due.
const clockTolerance = 50

// nothingWaits reports whether no row of the type waits, by reads that are as recent as
// the last news.
func (k *typeLanes) nothingWaits(s *schedule) bool {
	if k.waiting != 0 {
		return false
	}
	for p := range k.local {
		if l := &k.local[p]; l.reading || l.more || l.scanned != s.scans || l.epoch != s.epoch {
			return false
		}
	}
	return true
}
