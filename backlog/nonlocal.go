package backlog

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// nonLocal plans the reads of non-local rows. A dispatcher runs them on slots that
// have no local row. It also runs them if the dispatcher that owns them (their owner)
// lets them grow old. So no row depends on its owner: shares only reduce lost claims.
// Non-local rows count as younger by the penalty.
//
// A type has idle capacity when it has a free slot and no local row. Its non-local
// lanes are then read if rows may have come since the last such read. At each poll
// the non-local lanes of every type are read, because the owner of an old row may be
// stuck. These reads start at the beginning of the lane.
//
// While every share contains everything, nonLocal plans no reads.
type nonLocal struct {
	types   int            // types with a share that does not contain everything
	epoch   uint32         // grows when rows may have become available to dispatchers other than their owners
	polls   uint32         // grows with each poll
	pending bool           // some type may have idle capacity
	news    bool           // pending was set because rows may have come; their owner should read them first
	next    timing.Instant // earliest instant of the next round for idle capacity
	dueAt   int64          // when a row that was read gets older than OwnerGrace: database clock, milliseconds; 0 = none
	left    int            // types that are still to be considered in this round
	from    int            // the type with which the round continues
}

const (
	// OwnerGrace is how long a row is left to its owner, by the database clock.
	OwnerGrace = 30 * time.Millisecond
	// nonLocalPause is the minimum time between two reads for idle capacity. A random
	// time of at most nonLocalPause is added. When rows may have come, the first read
	// for idle capacity also waits for nonLocalPause.
	nonLocalPause = 50 * time.Millisecond
	// NonLocalLength is the number of rows that a read at a poll asks for, per lane.
	NonLocalLength = 8
)

// nonLocalRowsMayHaveCome notes that non-local rows may have become pending.
func (b *Backlog) nonLocalRowsMayHaveCome() {
	n := &b.nonLocal
	n.epoch++
	n.news = n.news || !n.pending
	n.pending = true
}

// readNonLocalAgain makes a type read its non-local lanes once more, after the pause.
func (b *Backlog) readNonLocalAgain(t slotindex.TypeID) {
	b.types[t].idleRead = b.nonLocal.epoch - 1
	b.nonLocal.pending = true
}

// wakeNonLocal returns when the next read may be due.
func (b *Backlog) wakeNonLocal() timing.Instant {
	n := &b.nonLocal
	next := timing.Never
	if n.types == 0 {
		return next
	}
	if n.pending || n.left > 0 {
		next = n.next
	}
	if n.dueAt != 0 {
		next = min(next, b.clock.instant(n.dueAt))
	}
	return next
}

// nonLocalRound starts a round of all types if one is due. It reports whether a round
// has types left.
func (b *Backlog) nonLocalRound() bool {
	n := &b.nonLocal
	if n.types == 0 {
		return false
	}
	if n.news {
		n.news, n.next = false, max(n.next, b.now.After(nonLocalPause))
	}
	if n.dueAt != 0 && b.clock.passed(n.dueAt, b.now) {
		n.dueAt, n.pending = 0, true
		n.epoch++
	}
	if n.pending && b.now >= n.next {
		n.pending, n.left = false, len(b.types)
	}
	return n.left > 0
}

// pollNonLocal makes every type read its non-local lanes.
func (b *Backlog) pollNonLocal() {
	n := &b.nonLocal
	n.polls++
	n.epoch++
	n.left = len(b.types)
}

// askNonLocal adds non-local lanes to the request: those of the types whose read is
// due, as many as fit.
func (b *Backlog) askNonLocal() {
	n := &b.nonLocal
	n.left = min(n.left, len(b.types))
	for n.left > 0 && b.fits(1) && len(b.fetch.lanes)+priorities <= max(priorities, b.cfg.LanesPerFetch) {
		if n.from >= len(b.types) {
			n.from = 0
		}
		t := slotindex.TypeID(n.from)
		n.from++
		n.left--
		k := b.types[t]
		if k.nonLocal == nil || b.index.Capacity(t) == 0 {
			continue
		}
		idle := b.idleCapacity(t)
		if k.polled == n.polls && (!idle || k.idleRead == n.epoch) {
			continue
		}
		k.polled = n.polls
		limit := NonLocalLength
		if idle {
			k.idleRead = n.epoch
			limit = max(NonLocalLength, 2*b.index.FreeFor(t))
			pause := millis(nonLocalPause)
			n.next = b.now + pause + timing.Instant(b.rng.IntN(int(pause)))
		}
		for p := range k.nonLocal {
			k.nonLocal[p].length = int32(min(limit, b.cfg.LaneLength))
			b.askNonLocalLane(Lane{t, dispatcherd.Priority(p), true}, true, idle)
		}
	}
}

// idleCapacity reports whether a type has a free slot and no local row. It returns
// false unless all local lanes of the type have been read since the last full scan
// became due.
func (b *Backlog) idleCapacity(t slotindex.TypeID) bool {
	k := b.types[t]
	if k.waiting&localLanes != 0 || !b.index.HasFree(t) {
		return false
	}
	for p := range k.local {
		if l := &k.local[p]; l.reading || l.scanned != b.schedule.scans {
			return false // the answer sets pending again
		}
	}
	return true
}

// continueNonLocal reads a non-local lane from its cursor if it still has few
// candidates.
func (b *Backlog) continueNonLocal(r Lane) {
	l := b.lane(r)
	if l.reading || !l.more || !l.half() {
		return
	}
	l.length = int32(min(2*int(l.length), b.cfg.LaneLength, max(NonLocalLength, 2*b.index.Capacity(r.Type))))
	b.askNonLocalLane(r, false, false)
}

// askNonLocalLane adds a non-local lane to the request.
func (b *Backlog) askNonLocalLane(r Lane, full, idle bool) {
	l := b.lane(r)
	if l.reading {
		return
	}
	query := contract.LaneQuery{
		Type: b.index.Name(r.Type), Priority: r.Priority, Limit: int(l.length), Share: b.types[r.Type].share, NonLocal: true,
	}
	if !full {
		query.After = l.cursor
	}
	l.reading = true
	b.fetch.ask(laneRead{Lane: r, full: full, idle: idle, batch: l.batch}, query)
}

// mergeNonLocal merges the answer for a non-local lane.
func (b *Backlog) mergeNonLocal(r laneRead, a answer, jobs Jobs) {
	l, n := b.lane(r.Lane), &b.nonLocal
	rows, full := a.rows, len(a.rows) == a.limit
	old := len(rows)
	for old > 0 && rows[old-1].Key.RunAt > a.dbNow-OwnerGrace.Microseconds() {
		old--
	}
	if old < len(rows) {
		if ms := floorMS(rows[old].Key.RunAt+OwnerGrace.Microseconds()) + 1; n.dueAt == 0 || ms < n.dueAt {
			n.dueAt = ms
		}
		rows, full = rows[:old], false
	}
	if r.full {
		l.keys, l.head = l.keys[:0], 0
		l.batch++
		if r.idle && full {
			rows = rows[b.leftToOwner(r.Type, rows):]
			b.readNonLocalAgain(r.Type) // there are more rows than free slots
		}
	} else {
		l.compact()
	}
	for _, row := range rows {
		if !b.inHand(row.Key, b.fetch.left, jobs) {
			l.keys = append(l.keys, row.Key)
		}
		l.cursor = row.Key
	}
	l.more = full
}

// leftToOwner returns how many of the first rows a type with idle capacity skips. The
// owner of these rows is probably about to claim them. The first row that is not
// skipped is at most the penalty younger than the first skipped row. So skipping does
// not lengthen the overtaking window.
func (b *Backlog) leftToOwner(t slotindex.TypeID, rows []contract.Candidate) int {
	n := max(0, len(rows)-max(1, b.index.FreeFor(t)))
	for n > 0 && rows[n].Key.RunAt > rows[0].Key.RunAt+b.cfg.Penalty.Microseconds() {
		n--
	}
	return n
}

// SetShare changes the share of a type and discards the candidates of its lanes.
// The places of the first candidates remain as upper bounds until the lanes are
// read again, so that no job passes them meanwhile.
func (b *Backlog) SetShare(t slotindex.TypeID, share contract.Share) {
	k := b.types[t]
	if k.share == share {
		return
	}
	b.dropNonLocal(k)
	if k.share = share; !share.All() {
		k.nonLocal = new([priorities]lane)
		k.idleRead, k.polled = b.nonLocal.epoch-1, b.nonLocal.polls
		b.nonLocal.types++
		b.nonLocal.pending = true
	}
	for p := range k.local {
		l := &k.local[p]
		if l.len() > 0 || l.more {
			b.cached -= l.len()
			l.discard()
		} else {
			l.batch++
		}
		b.update(t, dispatcherd.Priority(p))
	}
	b.CapacityAppeared(t)
}

// dropNonLocal removes the non-local lanes of a type.
func (b *Backlog) dropNonLocal(k *typeLanes) {
	if k.nonLocal == nil {
		return
	}
	for p := range k.nonLocal {
		b.cached -= k.nonLocal[p].len()
	}
	k.nonLocal = nil
	b.nonLocal.types--
}
