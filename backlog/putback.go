package backlog

import (
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// PutBack returns a row that is pending again to its lane, unless no slot supports
// its type. Of r, it uses type, priority and class. If the row is after the cursor, the next read of the
// lane finds it, and no other lane is read for it.
func (b *Backlog) PutBack(r Lane, k contract.Key) {
	if !b.types[r.Type].known || b.index.Capacity(r.Type) == 0 {
		return
	}
	r = b.LaneOf(r, k.ID)
	if r.NonLocal {
		b.use(r).restBefore(k)
		b.readNonLocalAgain(r.Type)
		return
	}
	l := b.use(r)
	if l.cursor.Less(k) {
		l.more = true
		b.Rescan(r)
		b.update(r)
		return
	}
	if l.insert(k) {
		l.changes++ // a full scan in flight may not have seen the row, so its answer must not replace the candidates
	}
	b.update(r)
}

// Lost notes that the claim of a row was lost: another dispatcher has the row, or had
// it locked. batch is the number that Pop returned. If too many rows of the batch
// were lost, Lost discards the rest of the batch and returns true. Article 1 discards
// a list after "five failed claims in a row". Claims run in parallel here, so the
// lost claims of a fetched batch are counted instead. A non-local batch is discarded
// at the first loss, because another dispatcher is working on it.
//
// If another transaction has locked the row, each read would return it again, and the
// slots would wait for it instead of taking the rows after it. So the next reads leave out
// locked rows.
func (b *Backlog) Lost(r Lane, batch uint32) (discarded bool) {
	b.schedule.lostAt = b.now
	if r.NonLocal {
		b.discardNonLocal(r)
		return false
	}
	b.scanReturned() // a row that was only locked may be free again
	if !b.types[r.Type].known {
		return false
	}
	l := b.lane(r)
	if l.batch == batch {
		l.lost++
	}
	if int(l.lost) < b.cfg.LostPerList {
		return false
	}
	l.discard()
	b.update(r)
	b.Rescan(r)
	return true
}

// lockedPause is how long reads leave out locked rows after a lost claim.
const lockedPause = 5 * time.Second

// skipLocked reports whether reads leave out locked rows.
func (b *Backlog) skipLocked() bool {
	return b.schedule.lostAt != 0 && b.now < b.schedule.lostAt.After(lockedPause)
}

// discardNonLocal drops the candidates of a non-local lane.
func (b *Backlog) discardNonLocal(r Lane) {
	l := b.lane(r)
	if l.len() > 0 {
		l.restBefore(l.first())
	}
	l.keys, l.head, l.more = l.keys[:0], 0, false
	l.batch++
	b.update(r)
	b.readNonLocalAgain(r.Type)
}

// GivenBack notes that a row is pending again and must not be placed at once. A scan finds
// it after returnPause.
func (b *Backlog) GivenBack() {
	b.schedule.noOverlap = b.now.After(overlap)
	b.scanReturned()
}

func (b *Backlog) scanReturned() { earliest(&b.schedule.scanAt, b.now.After(returnPause)) }

// Delayed notes that a row is pending again and due after a delay from now.
func (b *Backlog) Delayed(delay time.Duration) {
	b.schedule.expect((b.DBNow() + delay.Milliseconds()) * 1000)
	if delay < shortDelay { // the cursor may have passed the row's place before the row was there
		earliest(&b.schedule.scanAt, b.now.After(delay).After(returnPause))
	}
}
