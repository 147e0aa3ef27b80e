package backlog

import (
	"math"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// backfill reads the ranges up to the cursors of lanes while full scans are slow. As
// long as some transaction holds a snapshot, Postgres can neither remove nor skip the
// index entries of the jobs that have ended since. Each such entry costs a scan about
// a microsecond. A backfill scan reads these entries on a connection of its own.
// Reads after the cursors never meet the entries and do not wait for the scan. The
// two ranges are disjoint. The rows of the scan can be merged with the lane, because
// the backlog knows all rows that have left their place since the scan began.
//
// A round reads every due lane once. The pause between two rounds is 50 times the
// duration of the last round, at most maxBackfillPause. The pause is longer than
// maxPausePolls polls only if the last two rounds were slow and fetches were quick
// meanwhile. A single slow round may have hung, and slow fetches show that the server is
// slow with everything. Neither case predicts the duration of the next round.
type backfill struct {
	inFlight

	due          bool           // some lane is due
	from         int            // the type with which the round continues; 0 = no round has begun
	took         timing.Instant // duration of the round so far, or of the last one
	tookBefore   timing.Instant // duration of the round before
	slowestFetch timing.Instant // longest fetch during the round
	next         timing.Instant // earliest start of the next round
}

const (
	// slowScan is a duration. If two full scans in a row take longer, backfill
	// scans replace full scans. A single slow scan may be due to a busy machine.
	slowScan = 20 * time.Millisecond
	// verySlowScan is a duration that a busy machine does not explain. A single full
	// scan that takes longer is sufficient.
	verySlowScan = 10 * slowScan
	// maxBackfillPause is the longest pause between two rounds. A row that was
	// committed late waits for the pause and for the scan.
	maxBackfillPause = 5 * time.Minute
)

// backfillInstead reports whether a backfill scan replaces the full scan of a lane.
// If so, it makes the range up to the cursor of the lane due.
func (b *Backlog) backfillInstead(l *lane) bool {
	if !b.schedule.slow && l.backfillBound == (contract.Key{}) || l.epoch == 0 || l.cursor == (contract.Key{}) {
		return false
	}
	l.scanned, l.backfillDue, b.backfill.due = b.schedule.scans, true, true
	return true
}

// nextBackfill prepares the request of a backfill scan if one is due.
func (b *Backlog) nextBackfill() bool {
	f := &b.backfill
	if len(f.lanes) > 0 || f.breaker.Open(b.now) {
		return false
	}
	if f.from == 0 {
		if !f.due || b.now < f.next {
			return false
		}
		f.due, f.tookBefore, f.took, f.slowestFetch = false, f.took, 0, 0
	}
	f.request.Backfill, f.request.Lanes, f.request.SkipLocked = true, f.request.Lanes[:0], b.skipLocked()
	for f.from < len(b.types) && len(f.lanes)+priorities <= max(priorities, b.cfg.LanesPerFetch) {
		b.askBackfill(slotindex.TypeID(f.from))
		f.from++
	}
	if f.from >= len(b.types) {
		f.from = 0
	}
	if len(f.lanes) == 0 {
		if f.took > 0 {
			b.backfillRoundEnded(true) // the last part of the round had no lane to read
		}
		return f.from == 0 && f.due && b.now >= f.next && b.nextBackfill() // the next round
	}
	f.sentAt = b.now
	return true
}

// askBackfill adds the lanes of a type that are due.
func (b *Backlog) askBackfill(t slotindex.TypeID) {
	k := b.types[t]
	for r, l := range b.local(t) {
		if !l.backfillDue {
			continue
		}
		l.backfillDue = false
		if !k.known || b.index.Capacity(t) == 0 {
			continue // CapacityAppeared causes a full scan of the lanes
		}
		l.backfillBound = after(l.cursor)
		// All candidates and all jobs in hand may be in the answer.
		query := b.query(r, int(l.length)+l.len()+b.jobs.OfType(t))
		query.Before = l.backfillBound
		b.backfill.ask(laneRead{Lane: r}, query)
	}
}

// after returns the first key after k.
func after(k contract.Key) contract.Key {
	if k.ID == math.MaxInt64 {
		return contract.Key{RunAt: k.RunAt + 1}
	}
	k.ID++
	return k
}

// wakeBackfill returns the earliest instant of the next backfill scan.
func (b *Backlog) wakeBackfill() timing.Instant {
	f := &b.backfill
	if b.draining || len(f.lanes) > 0 || !f.due || f.breaker.Open(b.now) {
		return timing.Never
	}
	return f.next
}

// backfillFetched handles the answer of a backfill scan.
func (b *Backlog) backfillFetched(req *contract.FetchRequest, res contract.FetchResult) {
	f := &b.backfill
	if len(f.lanes) == 0 || len(req.Lanes) != len(f.lanes) {
		return
	}
	f.took += b.now - f.sentAt
	b.answered(&f.inFlight, req, res, b.mergeBackfill)
	if f.from == 0 {
		b.backfillRoundEnded(res.Verdict == contract.OK)
	}
}

// backfillRoundEnded plans the next round.
func (b *Backlog) backfillRoundEnded(ok bool) {
	f, s := &b.backfill, &b.schedule
	if b.fetch.outstanding() {
		f.slowestFetch = max(f.slowestFetch, b.now-b.fetch.sentAt)
	}
	pause := maxPausePolls * millis(b.cfg.Poll)
	if slow := min(f.took, f.tookBefore); slow > millis(verySlowScan) && f.slowestFetch < slow/4 {
		pause = max(pause, min(scanFactor*slow, millis(maxBackfillPause)))
	}
	f.next = b.now + min(pause, scanFactor*f.took)
	if ok {
		s.slow = f.took > millis(slowScan)
		s.took, s.ended = f.took, b.now
	}
}

// mergeBackfill merges the rows up to the cursor of one lane. It adds a row that is
// not a candidate and has not left its place since the scan began. Such a row was
// committed late or became pending again.
func (b *Backlog) mergeBackfill(r laneRead, query *contract.LaneQuery, a answer) {
	k, l := b.types[r.Type], b.lane(r.Lane)
	if !k.known || l.backfillBound != query.Before || b.index.Name(r.Type) != query.Type {
		return // the type is gone
	}
	l.backfillBound = contract.Key{}
	if a.verdict != contract.OK || k.share != query.Share {
		l.backfillDue, b.backfill.due = true, true
		return
	}
	for i, row := range a.rows {
		if row.Key.RunAt > a.dbNow { // the database clock went back
			b.schedule.expect(row.Key.RunAt)
			row.Key.ID--
			l.moveBack(row.Key)
			break
		}
		if !l.cursor.Less(row.Key) && !b.inHand(row.Key, b.backfill.left) {
			l.insert(row.Key)
		}
		if i == a.limit-1 { // the answer is full: there may be more rows
			l.moveBack(row.Key)
		}
	}
	b.update(r.Lane)
	b.readSoon(r.Lane)
}
