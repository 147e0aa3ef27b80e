package backlog

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Notified handles a notification that names no row: rows may have become pending.
func (b *Backlog) Notified() {
	b.gate.count(b.now)
	b.scanSoon()
}

// ListenerChanged records whether notifications are received.
func (b *Backlog) ListenerChanged(on bool) {
	b.schedule.listener = notSubscribed
	if on {
		b.schedule.listener = subscribed
		b.schedule.scanPending = true // notifications may have been missed in the meantime
	}
	b.becomeActive()
	b.RowsMayHaveCome()
}

// RowNotified handles a notification that names the only row of its transaction. An
// idle dispatcher claims this row without a fetch. The fetch would only return what
// the notification contains, and it takes a third of the time from the INSERT to
// the worker. A scan follows after scanPause, as after every notification.
// claimable says that queued jobs may be placed now and that the row is not in
// hand.
func (b *Backlog) RowNotified(n *contract.RowNotification, claimable bool) {
	b.gate.count(b.now)
	t, known := b.lookup(n.Type)
	if !known {
		return // the lanes are scanned when the type appears
	}
	if !b.types[t].share.Owns(n.Key.ID) {
		b.nonLocalRowNotified(t, n)
		return
	}
	if !claimable || !b.accept(t, n) {
		b.found(Lane{t, n.Priority, false, n.Class})
		b.scanSoon()
		return
	}
	if s := &b.schedule; !s.scanPending {
		s.scanPending, s.nextScan = true, max(s.nextScan, b.now.After(scanPause))
	}
}

// RowAdmitted handles the admission of a row that is not in hand. The row may be before the cursor, because jobs
// are not admitted in the order of the lane.
func (b *Backlog) RowAdmitted(n *contract.RowNotification) {
	if t, known := b.lookup(n.Type); known {
		b.PutBack(Lane{Type: t, Priority: n.Priority, Class: n.Class}, n.Key)
	}
}

// nonLocalRowNotified leaves a row to its owner. It is read OwnerGrace later if a slot is
// free then.
func (b *Backlog) nonLocalRowNotified(t slotindex.TypeID, n *contract.RowNotification) {
	l := b.use(Lane{t, n.Priority, true, n.Class})
	s := sighting{n.Key, max(b.DBNow()*1000, n.Key.RunAt)}
	if len(l.sightings) < b.cfg.LaneLength {
		l.see(s)
	}
	l.restBefore(n.Key)
	b.leaveToOwner(t, s.at)
}

// accept makes a row from a notification a candidate if a fetch could not return a
// better one. The conditions are: a slot is free for it, and no
// other row of the type waits or may wait unread. accept reports whether the row is
// now a candidate.
func (b *Backlog) accept(t slotindex.TypeID, n *contract.RowNotification) bool {
	if !b.clock.known || b.draining || floorMS(n.Key.RunAt) > b.DBNow()+clockTolerance {
		return false
	}
	if !b.index.HasFree(t) || !b.nothingWaitsOf(t) {
		return false
	}
	r := Lane{t, n.Priority, false, n.Class}
	l := b.use(r)
	if !l.cursor.Less(n.Key) {
		return false // a fetch was faster, and the job may have ended already; or the row was committed late
	}
	l.insert(n.Key)
	l.newBatch()
	l.cursor = n.Key
	b.update(r)
	return true
}

// clockTolerance is how far, in milliseconds, the estimate of the database clock
// may be behind the run_at of a row that is due.
const clockTolerance = 50

// nothingWaitsOf reports whether no row of a type waits, according to reads that
// are as recent as the last notification.
func (b *Backlog) nothingWaitsOf(t slotindex.TypeID) bool {
	k, s := b.types[t], &b.schedule
	nothing := k.waiting == 0 && k.listed == b.lists && b.fetch.types == 0 && len(k.classes[dispatcherd.NoDuration].local) > 0
	for _, l := range b.local(t) {
		nothing = nothing && !l.reading && !l.more && l.scanned == s.scans && l.epoch == s.epoch
	}
	return nothing
}
