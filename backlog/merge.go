package backlog

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Fetched handles the answer of a read. From then on the request belongs to the
// Backlog again. An answer to a request that is not in flight is ignored.
func (b *Backlog) Fetched(req *contract.FetchRequest, res contract.FetchResult) {
	if req.Backfill {
		b.backfillFetched(req, res)
		return
	}
	f := &b.fetch
	if !f.outstanding() || len(req.Lanes) != len(f.lanes) {
		return
	}
	ok := res.Verdict == contract.OK
	took := b.now - f.sentAt
	b.backfill.slowestFetch = max(b.backfill.slowestFetch, took)
	if f.scan {
		b.scanEnded(took, ok)
	}
	if f.poll {
		b.nonLocalPolled(took)
	}
	f.pollAt = min(f.pollAt, b.now+min(max(pollFactor*took, millis(shortestPoll)), millis(throttledPoll)))
	b.backOff()
	if ok {
		b.clock.set(res.DBNow, b.now)
	} else {
		b.round.start()
	}
	b.answered(&f.inFlight, req, res, b.mergeLane)
	if f.types > 0 {
		b.listed(req, res)
		b.listAt = b.now + min(scanFactor*took, maxPausePolls*millis(b.cfg.Poll))
	}
	f.again, f.types, f.named = false, 0, 0
}

// listed handles the names of lanes in an answer. The next fetch reads those that were not in use.
func (b *Backlog) listed(req *contract.FetchRequest, res contract.FetchResult) {
	for _, name := range req.Classes {
		if t, known := b.lookup(name); known && res.Verdict != contract.OK {
			b.types[t].listed = b.lists - 1
		}
	}
	for _, n := range res.Named {
		if t, known := b.lookup(req.Classes[n.Type]); known {
			b.found(Lane{Type: t, Priority: n.Priority, Class: n.Class})
		}
	}
}

// found lets the next fetch read a local lane that contains a row and was not in use. Decisions wait for its rows.
func (b *Backlog) found(r Lane) {
	if b.index.Capacity(r.Type) == 0 || b.types[r.Type].classes[r.Class].used&r.bit() != 0 && b.lane(r).epoch != 0 {
		return
	}
	b.use(r).more = true
	b.Rescan(r)
	b.update(r)
	if b.Shared(r.Type) {
		b.readNonLocalAgain(r.Type)
	}
}

// answered calls merge for each lane of a read. Afterwards the read is no longer in flight.
func (b *Backlog) answered(
	f *inFlight, req *contract.FetchRequest, res contract.FetchResult, merge func(laneRead, *contract.LaneQuery, answer),
) {
	if res.Verdict == contract.OK {
		f.breaker.Succeed()
	} else {
		f.breaker.Fail(b.now, b.cfg.RetryStatement, b.rng)
	}
	slices.SortFunc(f.left, contract.Key.Compare)
	rest := res.Candidates
	for i, r := range f.lanes {
		n := 0
		for n < len(rest) && rest[n].Lane == i {
			n++
		}
		merge(r, &req.Lanes[i], answer{rest[:n], res.Verdict, res.DBNow, req.Lanes[i].Limit})
		rest = rest[n:]
	}
	f.lanes, f.left, f.rows = f.lanes[:0], f.left[:0], 0
}

// answer is the part of a result that belongs to one lane.
type answer struct {
	rows    []contract.Candidate
	verdict contract.Verdict
	dbNow   int64
	limit   int
}

// mergeLane merges the answer for one lane.
func (b *Backlog) mergeLane(r laneRead, query *contract.LaneQuery, a answer) {
	k := b.types[r.Type]
	l := b.lane(r.Lane)
	if !k.known || !l.reading || b.index.Name(r.Type) != query.Type {
		return // the type is gone, or its non-local lanes are
	}
	l.reading = false
	switch {
	case a.verdict != contract.OK && r.NonLocal:
		b.readNonLocalAgain(r.Type)
		return
	case a.verdict != contract.OK:
		l.epoch = b.schedule.epoch - 1
		if r.full {
			l.scanned = b.schedule.scans - 1
		}
		return
	case l.batch != r.batch: // the candidates were discarded since
		b.Rescan(r.Lane)
		return
	}
	if r.NonLocal {
		b.mergeNonLocal(r, a)
	} else {
		b.mergeLocal(r, l, a)
	}
	b.update(r.Lane)
	b.readSoon(r.Lane) // the lane may have become empty meanwhile, and the scan returned no row
}

// mergeLocal merges the answer for a local lane.
func (b *Backlog) mergeLocal(r laneRead, l *lane, a answer) {
	due := a.rows
	for len(due) > 0 && due[len(due)-1].Key.RunAt > a.dbNow {
		due = due[:len(due)-1]
	}
	if len(due) < len(a.rows) {
		b.schedule.expect(a.rows[len(due)].Key.RunAt)
	}
	full := len(due) == a.limit
	if !full {
		b.nonLocal.pending = true // slots may have no local row now
	}
	switch {
	case !r.full:
		b.extend(l, due, full)
	case l.changes == r.changes:
		b.replace(l, due, full)
		if len(due) < len(a.rows) && !l.cursor.Less(a.rows[len(due)].Key) {
			l.cursor = a.rows[len(due)].Key // the database clock went back: continue from here when the row is due again
			l.cursor.ID--
		}
	default:
		b.mergeScan(l, due, r.first)
	}
}

// extend adds the rows of a read that began at the cursor or before it. They are a new
// batch if no candidate of the last batch is left.
func (b *Backlog) extend(l *lane, rows []contract.Candidate, full bool) {
	if l.len() == 0 {
		l.newBatch()
	}
	l.compact()
	for _, r := range rows {
		unread := l.cursor.Less(r.Key)
		switch {
		case b.inHand(r.Key, b.fetch.left):
		case unread:
			b.gate.found++
			l.keys = append(l.keys, r.Key)
		default:
			l.insert(r.Key)
		}
		if unread {
			l.cursor = r.Key
		}
	}
	l.more, l.allTaken = full, full && l.len() == 0
}

// replace replaces all candidates by the answer of a full scan. The lane has not
// changed since the scan was sent. full says that the answer contains as many rows as
// the scan asked for. The rows after the last one are then read again.
func (b *Backlog) replace(l *lane, rows []contract.Candidate, full bool) {
	if n := len(rows); n > 0 && (full || l.cursor.Less(rows[n-1].Key)) {
		l.cursor = rows[n-1].Key
	}
	l.keys, l.head = l.keys[:0], 0
	for _, r := range rows {
		if !b.inHand(r.Key, b.fetch.left) {
			l.keys = append(l.keys, r.Key)
		}
	}
	l.more, l.allTaken = full, full && l.len() == 0
	l.newBatch()
}

// mergeScan merges a full scan into a lane that has changed since the scan was sent. It
// uses only the rows before the first candidate that the lane had at that time. Some of
// the other rows were taken since, but the backlog does not know which.
func (b *Backlog) mergeScan(l *lane, rows []contract.Candidate, first contract.Key) {
	for _, r := range rows {
		if !r.Key.Less(first) {
			l.more = l.more || l.cursor.Less(rows[len(rows)-1].Key)
			return
		}
		if !b.inHand(r.Key, b.fetch.left) {
			l.insert(r.Key)
		}
	}
}

// inHand reports whether a row that was read as pending is in hand. It also returns
// true if the row was in hand while the read was in flight. left contains the
// places of such rows.
func (b *Backlog) inHand(k contract.Key, left []contract.Key) bool {
	if b.jobs.InHand(k) {
		return true
	}
	_, found := slices.BinarySearchFunc(left, k, contract.Key.Compare)
	return found
}
