package backlog

import (
	"iter"
	"math/bits"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// laneSet is a set of lanes of one type and duration class: bit p is the local lane of priority p, bit
// 16+p its non-local lane.
type laneSet uint32

const (
	nonLocalBit = 16
	localLanes  = laneSet(1<<nonLocalBit - 1)
)

// heads are the heads of the waiting lanes of a type, by position. The lanes themselves
// occupy thirty cache lines: a slot of thousands of types would take milliseconds to place a
// job.
type heads [nonLocalBit + priorities]contract.Key

// first returns the lane of the highest priority of a set that is not empty. t and c are the
// type and the class of the set.
func (s laneSet) first(t slotindex.TypeID, c dispatcherd.DurationClass) Lane {
	i := bits.Len32(uint32(s)) - 1
	if i >= nonLocalBit {
		return Lane{t, dispatcherd.Priority(i - nonLocalBit), true, c}
	}
	return Lane{t, dispatcherd.Priority(i), false, c}
}

// rest returns the set without its first lane.
func (s laneSet) rest() laneSet { return s &^ (1 << (bits.Len32(uint32(s)) - 1)) }

// Waits reports whether a type has a waiting lane.
func (b *Backlog) Waits(t slotindex.TypeID) bool { return b.types[t].waiting != 0 }

// Waiting ranges over the waiting lanes of a type: those that have a candidate or an upper bound.
func (b *Backlog) Waiting(t slotindex.TypeID) iter.Seq[Lane] {
	return func(yield func(Lane) bool) {
		for classes := b.types[t].waiting; classes != 0; classes &= classes - 1 {
			c := dispatcherd.DurationClass(bits.TrailingZeros16(classes))
			for lanes := b.types[t].classes[c].waiting; lanes != 0; lanes = lanes.rest() {
				if !yield(lanes.first(t, c)) {
					return
				}
			}
		}
	}
}

// WaitingTypes returns the types that have a waiting lane. The map is shared and
// must not be changed.
func (b *Backlog) WaitingTypes() slotindex.TypeMap { return b.waiting }

// Head returns the first candidate of a waiting lane. If there is no candidate, it
// returns the upper bound, the best key that the next row can have. ok is false if
// decisions no longer wait for the fetch of that row. Non-local lanes have no upper bound, so their unread rows delay no local job.
func (b *Backlog) Head(l Lane) (key contract.Key, upperBound, ok bool) {
	g := &b.types[l.Type].classes[l.Class]
	upperBound = g.bounds&l.bit() != 0
	return g.heads[l.position()], upperBound, !upperBound || b.worthWaiting()
}

// worthWaiting reports whether a fetch may soon return a better candidate.
func (b *Backlog) worthWaiting() bool {
	return !b.fetch.breaker.Open(b.now) && !b.FetchLate()
}

// FetchLate reports whether the fetch in flight has taken longer than
// Config.Patience. Decisions then no longer wait for it.
func (b *Backlog) FetchLate() bool {
	return b.fetch.outstanding() && b.now >= b.fetch.sentAt.After(b.cfg.Patience)
}

// FirstUnread considers the local lanes of a type that have no candidate. It
// returns the lowest key that an unread row of these lanes can have. It leaves out lanes that were never read. ok is false if
// there is no such lane.
func (b *Backlog) FirstUnread(t slotindex.TypeID) (first contract.Key, ok bool) {
	for _, l := range b.local(t) {
		if l.starved() && l.cursor != (contract.Key{}) && (!ok || l.cursor.Less(first)) {
			first, ok = l.cursor, true
		}
	}
	return first, ok
}

// Pop removes and returns the first candidate of a lane. batch is the number of the
// candidate's batch, which the caller passes to Lost.
func (b *Backlog) Pop(l Lane) (key contract.Key, batch uint32) {
	s := b.lane(l)
	key, batch = s.pop(), s.batch
	b.updateLane(l)
	b.readSoon(l)
	return key, batch
}

func (l Lane) bit() laneSet { return 1 << l.position() }

func (l Lane) position() int {
	if l.NonLocal {
		return nonLocalBit + int(l.Priority)
	}
	return int(l.Priority)
}

// updateLane updates the waiting lanes and classes of a type, and the head of a lane, after a change of the lane.
func (b *Backlog) updateLane(r Lane) {
	g, l := &b.types[r.Type].classes[r.Class], b.lane(r)
	b.cached += l.len() - l.cached
	l.cached = l.len()
	before := g.waiting
	g.waiting, g.bounds = g.waiting&^r.bit(), g.bounds&^r.bit()
	if l.len() > 0 || l.more && !r.NonLocal {
		if g.heads == nil {
			g.heads = new(heads)
		}
		g.heads[r.position()] = l.best()
		g.waiting |= r.bit()
		if l.len() == 0 {
			g.bounds |= r.bit()
		}
	}
	if g.waiting != before {
		b.updateType(r.Type, r.Class)
	}
}

// updateType updates the waiting classes after a change of the waiting lanes of one class.
func (b *Backlog) updateType(t slotindex.TypeID, c dispatcherd.DurationClass) {
	k := b.types[t]
	if k.waiting &^= 1 << c; k.classes[c].waiting != 0 {
		k.waiting |= 1 << c
	}
	b.waiting.Set(t, k.waiting != 0)
}

// update is updateLane for every change but that of Pop, which the owner of the jobs knows.
func (b *Backlog) update(r Lane) {
	b.updateLane(r)
	if b.types[r.Type].waiting != 0 {
		b.jobs.LanesChanged(r.Type)
	}
}
