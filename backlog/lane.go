package backlog

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// firstLength is the number of rows of the first read of a lane. The number is
// doubled if the lane has no candidate left before its next read is answered.
const firstLength = 32

// Lane names a lane: the pending rows of one type, priority and duration class inside the share, or
// those outside.
type Lane struct {
	Type     slotindex.TypeID
	Priority dispatcherd.Priority
	NonLocal bool
	Class    dispatcherd.DurationClass
}

// lane is the state of one lane.
type lane struct {
	keys   []contract.Key // the candidates are keys[head:], ascending
	head   int
	cached int          // the part of Backlog.cached, before the change that is under way
	cursor contract.Key // the next read continues after this key, normally that of the last row that was read

	batch   uint32 // number of the fetched batch
	lost    int32  // claims lost from this batch
	length  int32  // rows to ask for at the next read
	changes uint32 // counts candidates taken, discarded or put back
	epoch   uint32 // schedule.epoch of the last read that covered it; 0 = never read
	scanned uint32 // schedule.scans of the last full scan

	sightings []sighting   // non-local: rows of the last answer, and later notified rows; ascending
	rest      contract.Key // non-local: rows up to it were old enough at the last read, and are read again only at polls

	more     bool // the table may contain rows after cursor
	allTaken bool // the last read returned no candidate although it returned as many rows as it asked for
	reading  bool // the fetch in flight reads the lane
	low      bool // the lane is in round.low

	backfillDue   bool         // the range up to the cursor is to be read
	backfillBound contract.Key // end of the range that a backfill scan reads; zero = no scan reads the lane
}

func (l *lane) len() int { return len(l.keys) - l.head }

// starved reports whether the lane has no candidate although the table may contain
// one.
func (l *lane) starved() bool { return l.more && l.len() == 0 }

// half reports whether at most half of the rows of a read are left.
func (l *lane) half() bool { return l.len() <= int(l.length)/2 }

func (l *lane) first() contract.Key { return l.keys[l.head] }

// best returns the first candidate, or the upper bound if there is none.
func (l *lane) best() contract.Key {
	if l.len() > 0 {
		return l.first()
	}
	return l.cursor
}

func (l *lane) pop() contract.Key {
	k := l.keys[l.head]
	l.head++
	l.changes++
	if l.head == len(l.keys) {
		l.keys, l.head = l.keys[:0], 0
	}
	return k
}

// insert puts a key into its place. It reports false if the key is there already.
func (l *lane) insert(k contract.Key) bool {
	i, found := slices.BinarySearchFunc(l.keys[l.head:], k, contract.Key.Compare)
	if found {
		return false
	}
	if i == 0 && l.head > 0 {
		l.head--
		l.keys[l.head] = k
		return true
	}
	l.keys = slices.Insert(l.keys, l.head+i, k)
	return true
}

// newBatch begins a batch, in which no claim has been lost yet.
func (l *lane) newBatch() {
	l.batch++
	l.lost = 0
}

// discard removes the candidates. Until the lane is read again, its upper bound is
// the place of the first removed candidate, so that no job with a lower score
// passes.
func (l *lane) discard() {
	if l.len() > 0 {
		l.cursor = l.first()
		l.cursor.ID--
	}
	l.keys, l.head = l.keys[:0], 0
	l.more = true
	l.changes++
	l.newBatch()
}

// moveBack moves the cursor to an earlier place. Candidates after that place are
// dropped and read again.
func (l *lane) moveBack(to contract.Key) {
	if !to.Less(l.cursor) {
		return
	}
	l.compact()
	n, _ := slices.BinarySearchFunc(l.keys, to, contract.Key.Compare)
	for n < len(l.keys) && !to.Less(l.keys[n]) {
		n++
	}
	l.keys = l.keys[:n]
	l.cursor = to
	l.more = true
	l.changes++
	l.newBatch()
}

// restBefore makes the next read for idle capacity include a key.
func (l *lane) restBefore(k contract.Key) {
	if k.ID--; k.Less(l.rest) {
		l.rest = k
	}
}

// compact moves the candidates to the front of the slice, so that appending does not
// let it grow without bound.
func (l *lane) compact() {
	if l.head > 0 {
		n := copy(l.keys, l.keys[l.head:])
		l.keys, l.head = l.keys[:n], 0
	}
}

// lane returns the state of a lane. Non-local lanes are empty while the share of the type
// contains everything.
func (b *Backlog) lane(l Lane) *lane {
	g := &b.types[l.Type].classes[l.Class]
	lanes := &g.local
	if l.NonLocal {
		lanes = &g.nonLocal
	}
	if *lanes == nil {
		*lanes = make([]lane, priorities)
	}
	return &(*lanes)[l.Priority]
}

// use returns the state of a lane that contains a row. From then on the lane is read.
func (b *Backlog) use(r Lane) *lane {
	b.types[r.Type].classes[r.Class].used |= 1 << r.Priority
	return b.lane(r)
}

// LaneOf names the lane that contains a row by the present share. Of r, it uses type, priority and class.
func (b *Backlog) LaneOf(r Lane, id dispatcherd.JobID) Lane {
	r.NonLocal = !b.types[r.Type].share.Owns(id)
	return r
}

// Shared reports whether the type has non-local lanes.
func (b *Backlog) Shared(t slotindex.TypeID) bool { return !b.types[t].share.All() }
