package actor

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Several dispatchers on one table each have a share of the rows of a type.
// What belongs to it is their own, the rest is foreign to them. Own rows are
// read as if there were no others. Foreign ones sit in lanes of their own and
// count as younger by the handicap: they are for slots that have nothing better
// to do, and for rows that their owner lets grow old, so that no row depends on
// its owner. Which rows are whose is a courtesy that spares lost claims;
// nothing rests on it but their number.
const (
	// foreignGrace is how long a row is left to its owner, by the database clock.
	foreignGrace = 30 * time.Millisecond
	// foreignPause, and up to as much again by chance, lies between two looks at
	// foreign rows for slots that are free; and between news of rows and the
	// first such look.
	foreignPause = 50
	// foreignLength is what a look at every poll asks for, per lane.
	foreignLength = 8
)

// foreign plans the looks at foreign rows. It is part of fetching, and does
// nothing while every share is everything.
//
// A type is hungry when it has a free slot and none of its own rows waits. A
// hungry type looks at its foreign lanes when rows may have come since it last
// did; and at each poll every type does, because the owner of an old row may be
// stuck. A look begins at the beginning of the lane.
type foreign struct {
	kinds   int     // types with a share that is not everything
	epoch   uint32  // grows when rows may have become available to others than their owners
	polls   uint32  // grows with each poll
	stirred bool    // some type may be hungry
	fresh   bool    // as news came, which its owner is to hear first
	next    Instant // no look of the hungry before
	dueAt   int64   // database ms at which a row seen is old enough; 0 = none
	left    int     // types still to be asked
	from    int     // where that goes on
}

// stir notes that foreign rows may have become pending.
func (o *foreign) stir() {
	o.epoch++
	o.fresh = o.fresh || !o.stirred
	o.stirred = true
}

// again makes a type look at its foreign lanes once more, when the pause is over.
func (o *foreign) again(k *kind) {
	k.read = o.epoch - 1
	o.stirred = true
}

// wake is when the next look at foreign rows may be due.
func (o *foreign) wake(c *Core) Instant {
	next := Never
	if o.kinds == 0 {
		return next
	}
	if o.stirred || o.left > 0 {
		next = o.next
	}
	if o.dueAt != 0 && c.clock {
		next = min(next, Instant(o.dueAt-c.offset)+1)
	}
	return next
}

// clockwork turns passed instants into a round of all types. It reports whether
// one is under way.
func (o *foreign) clockwork(c *Core) bool {
	if o.kinds == 0 {
		return false
	}
	if o.fresh {
		o.fresh, o.next = false, max(o.next, c.now+foreignPause)
	}
	if o.dueAt != 0 && c.clock && c.dbNow() > o.dueAt {
		o.dueAt, o.stirred = 0, true
		o.epoch++
	}
	if o.stirred && c.now >= o.next {
		o.stirred, o.left = false, len(c.kinds)
	}
	return o.left > 0
}

// poll makes every type look.
func (o *foreign) poll(c *Core) {
	o.polls++
	o.epoch++
	o.left = len(c.kinds)
}

// askForeign adds the foreign lanes of types that want to look, as many as fit.
func (c *Core) askForeign() {
	o := &c.fetch.foreign
	o.left = min(o.left, len(c.kinds))
	for o.left > 0 && len(c.fetch.asked)+priorities <= max(priorities, c.cfg.Limits.LanesPerFetch) {
		if o.from >= len(c.kinds) {
			o.from = 0
		}
		t := slotindex.TypeID(o.from)
		o.from++
		o.left--
		k := &c.kinds[t]
		if k.foreign == nil || c.index.Capacity(t) == 0 {
			continue
		}
		hungry := c.hungry(t)
		if k.polled == o.polls && (!hungry || k.read == o.epoch) {
			continue
		}
		k.polled = o.polls
		limit := foreignLength
		if hungry {
			k.read = o.epoch
			limit = max(foreignLength, 2*c.index.FreeFor(t))
			o.next = c.now + foreignPause + Instant(c.rng.IntN(foreignPause))
		}
		for p := range k.foreign {
			k.foreign[p].length = int32(min(limit, c.cfg.Limits.LaneLength))
			c.askLane(laneRef{t, dispatcherd.Priority(p), true}, true, hungry)
		}
	}
}

// hungry reports whether a type has a free slot, and none of its own rows, all
// of which it knows.
func (c *Core) hungry(t slotindex.TypeID) bool {
	k := &c.kinds[t]
	if k.waiting&ownLanes != 0 || !c.index.HasFree(t) {
		return false
	}
	for p := range k.queued {
		if l := &k.queued[p]; l.asked || l.looked != c.fetch.looks {
			return false // the answer stirs again
		}
	}
	return true
}

// readOn adds a foreign lane from its cursor on, if it still runs low.
func (c *Core) readOn(r laneRef) {
	k := &c.kinds[r.typ]
	if k.foreign == nil {
		return
	}
	l := &k.foreign[r.priority]
	if l.asked || !l.more || l.len() > int(l.length)/2 {
		return
	}
	l.length = int32(min(2*int(l.length), c.cfg.Limits.LaneLength, max(foreignLength, 2*c.index.Capacity(r.typ))))
	c.askLane(r, false, false)
}

// askLane puts a foreign lane into the request.
func (c *Core) askLane(r laneRef, look, hungry bool) {
	f := &c.fetch
	k := &c.kinds[r.typ]
	l := &k.foreign[r.priority]
	if l.asked {
		return
	}
	lane := contract.LaneQuery{Type: c.index.Name(r.typ), Priority: r.priority, Limit: int(l.length), Share: k.share, NonLocal: true}
	if !look {
		lane.After = l.cursor
	}
	l.asked = true
	f.asked = append(f.asked, asking{laneRef: r, look: look, hungry: hungry, list: l.list})
	f.request.Lanes = append(f.request.Lanes, lane)
}

// fillForeign takes what Postgres answered for a foreign lane.
func (c *Core) fillForeign(a asking, rows []contract.Candidate, full bool, dbNow int64) {
	k := &c.kinds[a.typ]
	l := &k.foreign[a.priority]
	o := &c.fetch.foreign
	old := len(rows)
	for old > 0 && rows[old-1].Key.RunAt > dbNow-foreignGrace.Microseconds() {
		old--
	}
	if old < len(rows) {
		if ms := floorMS(rows[old].Key.RunAt+foreignGrace.Microseconds()) + 1; o.dueAt == 0 || ms < o.dueAt {
			o.dueAt = ms
		}
		rows, full = rows[:old], false
	}
	if a.look {
		l.keys, l.head = l.keys[:0], 0
		l.list++
		if a.hungry && full {
			rows = rows[c.leaveToOwner(a.typ, rows):]
			o.again(k) // more than can be taken now
		}
	} else {
		l.compact()
	}
	for _, r := range rows {
		if !c.isInHand(r.Key) {
			l.keys = append(l.keys, r.Key)
		}
		l.cursor = r.Key
	}
	l.more = full
}

// leaveToOwner returns how many rows in front a hungry type passes over: its
// owner, if it works, is about to claim them. None is passed by a row that came
// later by more than the handicap, so that this adds nothing to the window.
func (c *Core) leaveToOwner(t slotindex.TypeID, rows []contract.Candidate) int {
	n := max(0, len(rows)-max(1, c.index.FreeFor(t)))
	for n > 0 && rows[n].Key.RunAt > rows[0].Key.RunAt+c.cfg.Handicap.Microseconds() {
		n--
	}
	return n
}

// dropForeign throws a foreign list away whose first claim was lost: its owner,
// or another helper, is at work there.
func (c *Core) dropForeign(r laneRef) {
	k := &c.kinds[r.typ]
	if k.foreign == nil {
		return
	}
	l := &k.foreign[r.priority]
	c.cached -= l.len()
	l.keys, l.head, l.more = l.keys[:0], 0, false
	l.list++
	c.mark(r.typ, r.priority)
	c.fetch.foreign.again(k)
}

// divide changes the share of a type. What was read of its lanes is thrown
// away; the places of the first candidates are kept as phantoms until the lanes
// were read anew, so nothing passes them meanwhile.
func (c *Core) divide(t slotindex.TypeID, share contract.Share) {
	k := &c.kinds[t]
	if k.share == share {
		return
	}
	o := &c.fetch.foreign
	if k.foreign != nil {
		for p := range k.foreign {
			c.cached -= k.foreign[p].len()
		}
		k.foreign = nil
		o.kinds--
	}
	if k.share = share; !share.All() {
		k.foreign = new([priorities]lane)
		k.read, k.polled = o.epoch-1, o.polls
		o.kinds++
		o.stirred = true
	}
	for p := range k.queued {
		l := &k.queued[p]
		if l.len() > 0 || l.more {
			c.cached -= l.len()
			l.discard()
		} else {
			l.list++
		}
		c.mark(t, dispatcherd.Priority(p))
	}
	c.fetch.discover(k)
}

// laneOf names the lane in which a row sits by the present shares.
func (c *Core) laneOf(t slotindex.TypeID, p dispatcherd.Priority, id dispatcherd.JobID) laneRef {
	return laneRef{t, p, !c.kinds[t].share.Owns(id)}
}

// lane returns a lane; the foreign ones exist only while there is a share.
func (c *Core) lane(r laneRef) *lane {
	if r.foreign {
		return &c.kinds[r.typ].foreign[r.priority]
	}
	return &c.kinds[r.typ].queued[r.priority]
}

// lanes returns the lanes of one priority: the own one, and the foreign one if
// there is any.
func (k *kind) lanes(p dispatcherd.Priority) []*lane {
	if k.foreign == nil {
		return []*lane{&k.queued[p]}
	}
	return []*lane{&k.queued[p], &k.foreign[p]}
}

// handicapMS is what a lane's rows count as younger.
func (c *Core) handicapMS(foreign bool) int64 {
	if foreign {
		return c.cfg.Handicap.Milliseconds()
	}
	return 0
}

// holds reports whether a lane has a key read ahead.
func (l *lane) holds(k contract.Key) bool {
	_, found := slices.BinarySearchFunc(l.keys[l.head:], k, contract.Key.Compare)
	return found
}
