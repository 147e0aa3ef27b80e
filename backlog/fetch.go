package backlog

import (
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// laneRead is what is remembered of one lane of a read in flight.
type laneRead struct {
	Lane
	full    bool         // it reads from the beginning of the lane, not from its cursor
	overlap bool         // it reads from overlap before the present or from the cursor, whichever is earlier
	idle    bool         // it reads non-local rows for idle capacity
	changes uint32       // lane.changes when the read was sent
	batch   uint32       // lane.batch when the read was sent
	first   contract.Key // first candidate of the lane, or its cursor, when the read was sent
}

// inFlight is a read in flight: the fetch or the backfill scan. There is at most one of each.
type inFlight struct {
	lanes   []laneRead
	request contract.FetchRequest // reused
	sentAt  timing.Instant
	rows    int            // the most rows that the answer can have
	left    []contract.Key // keys of rows that have left a place that it reads since it was sent
	breaker timing.Breaker
}

// fetching is the fetch.
type fetching struct {
	inFlight

	pollAt timing.Instant // earliest instant of the next poll for free slots
	known  int            // those of them that lanes with candidates are asked for
	room   int            // bound of known
	types  int            // types of which it names the lanes
	named  int            // the lanes that it is expected to name, and one for each type
	scan   bool           // it reads some local lane from its beginning
	poll   bool           // it reads some non-local lane from its beginning
	again  bool           // it reads places that were read before
	cut    bool           // it contains a part of the lanes of the round
	rest   bool           // the next one reads further lanes from their beginning
}

// outstanding reports whether a fetch is in flight.
func (f *fetching) outstanding() bool { return len(f.lanes)+f.types > 0 }

// ask adds a lane to the request.
func (f *inFlight) ask(r laneRead, q contract.LaneQuery) {
	f.rows += q.Limit
	f.lanes = append(f.lanes, r)
	f.request.Lanes = append(f.request.Lanes, q)
}

// fits reports whether the fetch may read one more lane. part is the reciprocal of
// the part of the lanes and rows that may be used. The last lane may exceed the bound
// of the rows.
func (b *Backlog) fits(part int) bool {
	return len(b.fetch.lanes) < max(1, b.cfg.LanesPerFetch/part) && b.fetch.rows < max(1, b.cfg.RowsPerFetch/part)
}

// NextRead calls send for the reads that are due: a fetch, a backfill scan, or
// both. Fetched handles each answer.
func (b *Backlog) NextRead(send func(*contract.FetchRequest)) {
	if !b.draining && b.nextFetch() {
		send(&b.fetch.request)
	}
	if !b.draining && b.nextBackfill() {
		send(&b.backfill.request)
	}
}

// nextFetch prepares the request of a fetch if some lane must be read.
func (b *Backlog) nextFetch() bool {
	f := &b.fetch
	if f.breaker.Open(b.now) {
		return false
	}
	pause := b.now < f.pollAt
	b.checkTimes()
	if f.outstanding() || (!b.nonLocalRound(pause) && !b.roundDue() && len(b.round.low) == 0) {
		return false
	}
	f.request.Lanes, f.request.Classes, f.request.SkipLocked = f.request.Lanes[:0], f.request.Classes[:0], b.skipLocked()
	f.known, f.rest = 0, false
	round := b.roundDue()
	b.askLow(round)
	if round {
		f.room = max(b.cfg.KnownRows, f.known+b.cfg.KnownRows/2)
		b.askRound()
	}
	b.askNonLocal()
	if !f.outstanding() {
		return false
	}
	f.sentAt, f.cut = b.now, round && b.round.left > 0
	f.scan, f.poll, f.again = false, false, false
	for _, r := range f.lanes {
		f.scan = f.scan || r.full && !r.NonLocal
		f.poll = f.poll || r.full && r.NonLocal
		f.again = f.again || r.full || r.overlap
	}
	return true
}

// askLocal adds a local lane to the request in two cases: a full scan of the lane is
// due, or the lane has few candidates left and the table may contain more. It reports false if the lane has to wait for the next
// fetch. Lanes with candidates have less room, because decisions do not wait for them. Decisions wait for lanes without
// candidates that may have rows, and may not know of the rows of others.
func (b *Backlog) askLocal(r Lane) bool {
	s := &b.schedule
	l := b.lane(r)
	scan := l.scanned != s.scans && !b.backfillInstead(l)
	if l.epoch != s.epoch && l.len() > 0 {
		l.more = true // rows may have come since the last read
	}
	low := l.half() && (l.more || l.epoch != s.epoch)
	if l.reading || (!scan && !low) {
		return true
	}
	known := l.len() > 0
	if !b.fits(1) || known && b.fetch.known >= b.fetch.room {
		b.fetch.rest = b.fetch.rest || scan
		return false
	}
	if l.length == 0 {
		l.length = firstLength
	}
	if l.starved() && !scan {
		l.length *= 2
	}
	limit := max(2, 2*b.index.Capacity(r.Type))
	if l.allTaken {
		limit = b.cfg.LaneLength
	}
	l.length = int32(min(int(l.length), b.cfg.LaneLength, limit))
	read := laneRead{Lane: r, full: scan || l.epoch == 0, changes: l.changes, batch: l.batch, first: l.cursor}
	if l.len() > 0 {
		read.first = l.first()
	}
	query := b.query(r, int(l.length))
	if read.full {
		l.scanned = s.scans
	} else {
		read.overlap = !l.more && b.now >= s.noOverlap && b.clock.known
		query.After = l.cursor
	}
	if start := b.recent(); read.overlap && start.Less(l.cursor) {
		query.After = start
	}
	l.epoch, l.reading = s.epoch, true
	if known {
		b.fetch.known += query.Limit
	}
	b.fetch.ask(read, query)
	return true
}

// query returns the query of a lane from its beginning.
func (b *Backlog) query(r Lane, limit int) contract.LaneQuery {
	return contract.LaneQuery{
		Type: b.index.Name(r.Type), Priority: r.Priority, Class: r.Class, Limit: limit, Share: b.types[r.Type].share, NonLocal: r.NonLocal,
	}
}

// overlap is how far a read after the cursor goes back if the lane had no further rows at
// the last read. A transaction that commits within this time after its beginning
// needs no full scan.
const overlap = 100 * time.Millisecond

// recent returns the key before all rows that became due in the last 100 ms, see overlap.
func (b *Backlog) recent() contract.Key {
	return contract.Key{RunAt: b.DBNow()*1000 - overlap.Microseconds()}
}

// Departed notes that a row is no longer pending at its place. A scan in flight may
// have read the row before the claim, and its answer may arrive after the job has
// ended and is forgotten. Without the note the row would become a candidate again.
// Only a bounded number of rows is noted, because a missing note costs at most a lost
// claim.
func (b *Backlog) Departed(r Lane, k contract.Key) {
	if f := &b.fetch; f.again && len(f.left) < b.cfg.Departures {
		f.left = append(f.left, k)
	}
	bf := &b.backfill
	r.NonLocal = false
	if len(bf.lanes) > 0 && len(bf.left) < b.cfg.Departures && k.Less(b.lane(r).backfillBound) {
		bf.left = append(bf.left, k)
	}
}
