package actor

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

const priorities = int(dispatcherd.MaxPriority) + 1

// kind is what Core knows of one type: its lanes, queued and on-demand, one of
// each per priority.
type kind struct {
	queued  [priorities]lane  // of the own share
	foreign *[priorities]lane // of the other rows; nil while the share is everything
	share   contract.Share
	demand  [priorities]line
	waiting uint64 // bit p: queued lane p has candidates or a phantom; 16+p: foreign lane p has candidates; 32+p: demand line p is not empty
	read    uint32 // foreign.epoch when a hungry look last began
	polled  uint32 // foreign.polls when the foreign lanes were last asked
	dirty   bool
	urgent  bool          // a request has entered a line since place looked; dirty as well then
	limit   time.Duration // of an attempt whose row names none
	held    bool          // Core holds the type in the index
	jobs    int32         // jobs in hand
	abroad  int32         // slots of other dispatchers that support the type
}

const (
	foreignBit = 16
	demandBit  = 32
	ownLanes   = 1<<foreignBit - 1
)

// lane is a queued lane: the candidates read ahead, oldest first.
type lane struct {
	keys   []contract.Key // waiting ones are keys[head:], ascending
	head   int
	cursor contract.Key // everything up to it was fetched; the next fetch goes on from here
	list   uint32       // number of the fetched list
	lost   int32        // claims lost from it
	length int32        // candidates to ask for next time
	crowd  bool         // half of what the last fetch brought are of one instant
	more   bool         // Postgres is known to hold more behind cursor
	asked  bool         // part of the fetch in flight
	seen   uint32       // fetching.epoch of the last fetch that covered it
	looked uint32       // fetching.looks of the last full look
	pops   uint32       // keys taken, thrown away or put back so far
	low    bool         // noted in fetching.low
	due    bool         // what lies behind the cursor is to be read
	before contract.Key // what lies before it is being read; zero = nothing is
}

func (l *lane) len() int { return len(l.keys) - l.head }

// starved reports that the lane's next candidate exists but is not known yet.
func (l *lane) starved() bool { return l.more && l.len() == 0 }

func (l *lane) first() contract.Key { return l.keys[l.head] }

func (l *lane) pop() contract.Key {
	k := l.keys[l.head]
	l.head++
	l.pops++
	if l.head == len(l.keys) {
		l.keys, l.head = l.keys[:0], 0
	}
	return k
}

// insert puts a key that came back into its place.
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

// discard throws the candidates away. Until the lane is read again it counts as
// starved at the place of the first of them, so that no lesser job passes.
func (l *lane) discard() {
	if l.len() > 0 {
		l.cursor = l.first()
		l.cursor.ID--
	}
	l.keys, l.head = l.keys[:0], 0
	l.more = true
	l.list++
	l.lost = 0
	l.pops++
}

// compact moves the waiting keys to the front so that appending does not grow
// the slice without end.
func (l *lane) compact() {
	if l.head > 0 {
		n := copy(l.keys, l.keys[l.head:])
		l.keys, l.head = l.keys[:n], 0
	}
}

// line is an on-demand lane: requests of one type and priority in order of
// arrival. The cap bends the ageing of all of them alike, so that order is the
// order of score.
type line struct {
	first, last *job
}

// cameBefore orders requests. Their ids fall, but are drawn before the loop hears
// of them, so of two that come at about the same time the larger may come later.
func (j *job) cameBefore(o *job) bool {
	return j.arrival < o.arrival || j.arrival == o.arrival && j.id > o.id
}

// push puts in who has just come: behind all, but for those of the same instant.
func (l *line) push(j *job) {
	var behind *job
	for at := l.last; at != nil && j.cameBefore(at); at = at.prev {
		behind = at
	}
	l.insert(j, behind)
}

// putBack returns a job to its place, which is near the front.
func (l *line) putBack(j *job) {
	at := l.first
	for at != nil && at.cameBefore(j) {
		at = at.next
	}
	l.insert(j, at)
}

// insert puts a job in front of another one; nil = at the end.
func (l *line) insert(j, behind *job) {
	j.prev, j.next = l.last, behind
	if behind != nil {
		j.prev, behind.prev = behind.prev, j
	} else {
		l.last = j
	}
	if j.prev != nil {
		j.prev.next = j
	} else {
		l.first = j
	}
}

func (l *line) remove(j *job) {
	if j.prev == nil {
		l.first = j.next
	} else {
		j.prev.next = j.next
	}
	if j.next == nil {
		l.last = j.prev
	} else {
		j.next.prev = j.prev
	}
	j.next, j.prev = nil, nil
}

// mark sets or clears the bits by which place finds the lanes of a type, and
// has place look at it.
func (c *Core) mark(t slotindex.TypeID, p dispatcherd.Priority) {
	k := &c.kinds[t]
	q, f, d := uint64(1)<<p, uint64(1)<<(foreignBit+int(p)), uint64(1)<<(demandBit+int(p))
	k.waiting &^= q | f | d
	if l := &k.queued[p]; l.len() > 0 || l.starved() {
		k.waiting |= q
	}
	if k.foreign != nil && k.foreign[p].len() > 0 {
		k.waiting |= f
	}
	if k.demand[p].first != nil {
		k.waiting |= d
	}
	if k.waiting != 0 {
		c.touch(t)
	}
}

// kindOf makes room for a type's state.
func (c *Core) kindOf(t slotindex.TypeID) *kind {
	for int(t) >= len(c.kinds) {
		c.kinds = append(c.kinds, kind{})
	}
	return &c.kinds[t]
}

// hold keeps a type known while Core has something to remember of it.
func (c *Core) hold(name string) slotindex.TypeID {
	t := c.index.Hold(name)
	if k := c.kindOf(t); k.held {
		c.index.Drop(t)
	} else {
		k.held = true
		k.abroad = int32(c.elsewhere[name])
		k.limit = c.cfg.Timeouts[name]
		c.known++
		c.divide(t, c.shares[name])
	}
	return t
}

// letGo forgets a type that has neither slots nor jobs in hand. Its cached
// candidates are only hints: they are dropped, the rows stay pending.
func (c *Core) letGo(t slotindex.TypeID) {
	k := &c.kinds[t]
	if !k.held || k.jobs > 0 || c.index.Capacity(t) > 0 {
		return
	}
	for p := range k.queued {
		for _, l := range k.lanes(dispatcherd.Priority(p)) {
			c.cached -= l.len()
		}
	}
	if k.foreign != nil {
		c.fetch.foreign.kinds--
	}
	*k = kind{dirty: k.dirty, urgent: k.urgent}
	c.known--
	c.index.Drop(t)
}
