package backlog

import (
	"math/bits"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// LaneSet is a set of lanes of one type: bit p is the local lane of priority p, bit
// 16+p its non-local lane.
type LaneSet uint32

const (
	nonLocalBit = 16
	localLanes  = LaneSet(1<<nonLocalBit - 1)
)

// heads are the heads of the waiting lanes of a type, by position. The lanes themselves
// occupy thirty cache lines: a slot of thousands of types would take milliseconds to place a
// job.
type heads [nonLocalBit + priorities]contract.Key

// First returns the lane of the highest priority of a set that is not empty. t is the
// type of the set.
func (s LaneSet) First(t slotindex.TypeID) Lane {
	i := bits.Len32(uint32(s)) - 1
	if i >= nonLocalBit {
		return Lane{t, dispatcherd.Priority(i - nonLocalBit), true}
	}
	return Lane{t, dispatcherd.Priority(i), false}
}

// Rest returns the set without its first lane.
func (s LaneSet) Rest() LaneSet { return s &^ (1 << (bits.Len32(uint32(s)) - 1)) }

// Waiting returns the lanes of a type that have a candidate or an upper bound.
func (b *Backlog) Waiting(t slotindex.TypeID) LaneSet { return b.types[t].waiting }

// WaitingTypes returns the types that have a waiting lane. The map is shared and
// must not be changed.
func (b *Backlog) WaitingTypes() slotindex.TypeMap { return b.waiting }

// Head returns the first candidate of a waiting lane. If there is no candidate, it
// returns the upper bound, the best key that the next row can have. ok is false if
// decisions no longer wait for the fetch of that row. Non-local lanes have no upper bound, so their unread rows delay no local job.
func (b *Backlog) Head(l Lane) (key contract.Key, upperBound, ok bool) {
	k := b.types[l.Type]
	upperBound = k.bounds&l.bit() != 0
	return k.heads[l.position()], upperBound, !upperBound || b.worthWaiting()
}

// copyHead copies the head of a waiting lane into the heads of its type. After every change
// of a lane, update or Pop calls it.
func (b *Backlog) copyHead(r Lane) {
	k, l := b.types[r.Type], b.lane(r)
	if k.heads == nil {
		k.heads = new(heads)
	}
	k.heads[r.position()], k.bounds = l.best(), k.bounds&^r.bit()
	if l.len() == 0 {
		k.bounds |= r.bit()
	}
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
// returns the lowest key that an unread row of these lanes can have. ok is false if
// there is no such lane.
func (b *Backlog) FirstUnread(t slotindex.TypeID) (first contract.Key, ok bool) {
	for p := range b.types[t].local {
		if l := &b.types[t].local[p]; l.starved() && (!ok || l.cursor.Less(first)) {
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
	b.cached--
	if s.len() == 0 && (l.NonLocal || !s.more) {
		k := b.types[l.Type]
		k.waiting &^= l.bit()
		b.waiting.Set(l.Type, k.waiting != 0)
	} else {
		b.copyHead(l)
	}
	b.readSoon(l)
	return key, batch
}

func (l Lane) bit() LaneSet { return 1 << l.position() }

func (l Lane) position() int {
	if l.NonLocal {
		return nonLocalBit + int(l.Priority)
	}
	return int(l.Priority)
}

// update updates the waiting lanes after a change of the lanes of one priority.
func (b *Backlog) update(t slotindex.TypeID, p dispatcherd.Priority) {
	k := b.types[t]
	local, remote := Lane{t, p, false}.bit(), Lane{t, p, true}.bit()
	k.waiting &^= local | remote
	if l := b.lane(Lane{t, p, false}); l.len() > 0 || l.starved() {
		k.waiting |= local
		b.copyHead(Lane{t, p, false})
	}
	if k.nonLocal != nil && k.nonLocal[p].len() > 0 {
		k.waiting |= remote
		b.copyHead(Lane{t, p, true})
	}
	b.waiting.Set(t, k.waiting != 0)
	if k.waiting != 0 && !k.changed {
		k.changed = true
		b.changed = append(b.changed, t)
	}
}

// TakeChanged calls f for every type whose waiting lanes have changed since the last
// call. Changes by Pop do not count.
func (b *Backlog) TakeChanged(f func(slotindex.TypeID)) {
	for _, t := range b.changed {
		b.types[t].changed = false
		f(t)
	}
	b.changed = b.changed[:0]
}

// IsChanged reports whether the next call of TakeChanged names the type.
func (b *Backlog) IsChanged(t slotindex.TypeID) bool { return b.types[t].changed }
