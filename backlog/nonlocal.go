package backlog

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// nonLocal plans the reads of non-local rows. A dispatcher runs non-local rows on slots
// that have no local row, and if the dispatcher that owns the rows (their owner) lets
// them grow old. So no row depends on its owner: shares only reduce lost claims.
// Non-local rows count as younger by the penalty.
//
// A type has idle capacity when it has a free slot and no candidate. Its non-local
// lanes are then read if rows may have come since the last such read, or if a known row
// got older than OwnerGrace. Such a read begins at lane.rest, but after each full scan of the
// local lanes at the beginning of the lanes. At each poll the non-local lanes of every
// type are read from their beginning, because the owner of an old row may be stuck.
//
// While every share contains everything, nonLocal plans no reads.
type nonLocal struct {
	types   int            // types with a share that does not contain everything
	epoch   uint32         // grows when rows may have come
	polls   uint32         // grows with each poll
	pollAt  timing.Instant // earliest instant of the next poll
	pending bool           // some type may have idle capacity
	dueAt   int64          // the earliest typeLanes.dueAt; 0 = none
	left    int            // types that are still to be considered in this round
	from    int            // the type with which the round continues
}

const (
	// OwnerGrace is how long a row is left to its owner after it was seen, by the
	// database clock.
	OwnerGrace = 5 * time.Millisecond
	// NonLocalLength is the number of rows that a read at a poll asks for, per lane.
	NonLocalLength = 8
	// freeClasses bounds the work for a count of free slots: further sets of types are not
	// counted, so fewer rows are read at a time.
	freeClasses = 64
)

// leaveToOwner makes a type read its non-local lanes OwnerGrace after a row of theirs was
// seen.
func (b *Backlog) leaveToOwner(t slotindex.TypeID, since int64) {
	ms := floorMS(since+OwnerGrace.Microseconds()) + 1
	earliest(&b.types[t].dueAt, ms)
	earliest(&b.nonLocal.dueAt, ms)
}

// readNonLocalAgain makes a type read its non-local lanes once more, after the pause.
func (b *Backlog) readNonLocalAgain(t slotindex.TypeID) {
	b.types[t].idleRead = b.nonLocal.epoch - 1
	b.nonLocal.pending = true
}

// wakeNonLocal returns when the next read may be due.
func (b *Backlog) wakeNonLocal() timing.Instant {
	n := &b.nonLocal
	switch {
	case n.types == 0:
		return timing.Never
	case n.pending || n.left > 0:
		return max(b.now, b.fetch.pollAt)
	case n.dueAt != 0:
		return max(b.fetch.pollAt, b.clock.instant(n.dueAt))
	}
	return timing.Never
}

// nonLocalRound starts a round of all types if one is due. It reports whether a round
// has types left. pause says that the pause after the last read for free slots continues.
func (b *Backlog) nonLocalRound(pause bool) bool {
	n := &b.nonLocal
	if n.types == 0 {
		return false
	}
	if b.passed(n.dueAt) {
		n.dueAt, n.pending = 0, true
	}
	if n.pending && !pause {
		n.pending, n.left = false, len(b.types)
	}
	return n.left > 0
}

// pollNonLocal makes every type read its non-local lanes.
func (b *Backlog) pollNonLocal() {
	n := &b.nonLocal
	if b.now >= n.pollAt {
		n.polls++
	}
	n.epoch++
	n.left = len(b.types)
}

// nonLocalPolled plans the pause after a fetch that read non-local lanes from their
// beginning.
func (b *Backlog) nonLocalPolled(took timing.Instant) {
	b.nonLocal.pollAt = b.now + min(scanFactor*took, maxPausePolls*millis(b.cfg.Poll))
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
		if !b.Shared(t) || b.index.Capacity(t) == 0 {
			continue
		}
		idle, poll := b.idleReadDue(t), k.polled != n.polls
		if !idle && !poll {
			continue
		}
		k.polled = n.polls
		limit := NonLocalLength
		if idle {
			k.idleRead, k.dueAt = n.epoch, 0
			limit = max(NonLocalLength, 2*b.index.FreeFor(t, freeClasses))
			b.fetch.pollAt = b.now.After(throttledPoll)
		}
		full := poll || k.scanned != b.schedule.scans && b.now >= n.pollAt
		if full {
			k.scanned = b.schedule.scans
		}
		for c := range k.classes {
			for used := k.classes[c].used; used != 0; used = used.rest() {
				r := used.first(t, dispatcherd.DurationClass(c))
				r.NonLocal = true
				b.lane(r).length = int32(min(limit, b.cfg.LaneLength))
				b.askNonLocalLane(r, full, idle)
			}
		}
	}
}

// idleReadDue reports whether the non-local lanes of a type are to be read for idle
// capacity. Local rows that are read at the same time are placed first.
func (b *Backlog) idleReadDue(t slotindex.TypeID) bool {
	k, n := b.types[t], &b.nonLocal
	due := b.passed(k.dueAt)
	if k.dueAt != 0 && !due {
		earliest(&n.dueAt, k.dueAt)
	}
	return (due || k.idleRead != n.epoch) && k.waiting == 0 && b.index.HasFree(t)
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
	query := b.query(r, int(l.length))
	if idle && !full {
		query.After = l.rest
		if start := b.recent(); start.Less(query.After) {
			query.After = start
		}
	} else if !full {
		query.After = l.cursor
	}
	l.reading = true
	b.fetch.ask(laneRead{Lane: r, full: full, idle: idle, overlap: idle, batch: l.batch}, query)
}

// mergeNonLocal merges the answer for a non-local lane.
func (b *Backlog) mergeNonLocal(r laneRead, a answer) {
	l, first := b.lane(r.Lane), 0
	rows, full := b.oldEnough(r.Type, l, a), len(a.rows) == a.limit
	if r.full || r.idle {
		l.keys, l.head = l.keys[:0], 0
		l.batch++
		switch {
		case !full:
			l.rest = contract.Key{RunAt: a.dbNow - overlap.Microseconds()}
		case r.idle:
			first = b.leftToOwner(r.Type, rows)
			b.readNonLocalAgain(r.Type) // there are more rows than free slots
		}
	} else {
		l.compact()
	}
	for _, k := range rows[first:] {
		l.keys = append(l.keys, k)
		l.cursor = k
	}
	l.more = full && len(rows) > 0
}

// sighting says when a non-local row that is due was seen first: by a read, or by its
// notification.
type sighting struct {
	contract.Key
	at int64 // database clock, microseconds
}

// oldEnough returns the rows of an answer that their owner has left for OwnerGrace since
// they were seen first. A row that became due longer than overlap ago is old in any
// case. A row may be committed long after its transaction began, so its age does not say
// for how long its owner could read it.
func (b *Backlog) oldEnough(t slotindex.TypeID, l *lane, a answer) (rows []contract.Key) {
	before := l.sightings
	l.sightings = nil
	for _, row := range a.rows {
		if b.inHand(row.Key, b.fetch.left) {
			continue
		}
		s := sighting{row.Key, max(a.dbNow, row.Key.RunAt)}
		if i, found := slices.BinarySearchFunc(before, s.Key, sighting.compare); found {
			s.at = min(s.at, before[i].at)
		}
		l.sightings = append(l.sightings, s)
		if s.at <= a.dbNow-OwnerGrace.Microseconds() || row.Key.RunAt <= a.dbNow-overlap.Microseconds() {
			rows = append(rows, row.Key)
		} else {
			b.leaveToOwner(t, s.at)
		}
	}
	for _, s := range before {
		if s.at > a.dbNow && s.RunAt <= a.dbNow {
			l.see(s) // the notification arrived after the snapshot of the answer
		}
	}
	return rows
}

func (s sighting) compare(k contract.Key) int { return s.Compare(k) }

// see adds a sighting.
func (l *lane) see(s sighting) {
	if i, found := slices.BinarySearchFunc(l.sightings, s.Key, sighting.compare); !found {
		l.sightings = slices.Insert(l.sightings, i, s)
	}
}

// leftToOwner returns how many of the first rows a type with idle capacity skips. The
// owner of these rows is probably about to claim them. The first row that is not
// skipped is at most the penalty younger than the first skipped row. So skipping does
// not lengthen the overtaking window.
func (b *Backlog) leftToOwner(t slotindex.TypeID, rows []contract.Key) int {
	n := max(0, len(rows)-max(1, b.index.FreeFor(t, freeClasses)))
	for n > 0 && rows[n].RunAt > rows[0].RunAt+b.cfg.Penalty.Microseconds() {
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
	b.dropNonLocal(t)
	if k.share = share; !share.All() {
		k.idleRead, k.polled = b.nonLocal.epoch-1, b.nonLocal.polls
		k.dueAt = 0
		b.nonLocal.types++
		b.nonLocal.pending = true
	}
	for r, l := range b.local(t) {
		if l.len() > 0 || l.more {
			l.discard()
		} else {
			l.batch++
		}
		b.update(r)
	}
	b.CapacityAppeared(t)
}

// dropNonLocal removes the non-local lanes of a type.
func (b *Backlog) dropNonLocal(t slotindex.TypeID) {
	k := b.types[t]
	if k.share.All() {
		return
	}
	for c := range k.classes {
		g := &k.classes[c]
		for p := range g.nonLocal {
			b.cached -= g.nonLocal[p].len()
		}
		clear(g.nonLocal)
		g.waiting &= localLanes
		b.updateType(t, dispatcherd.DurationClass(c))
	}
	b.nonLocal.types--
}
