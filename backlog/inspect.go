package backlog

import (
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// LaneState is what is known of one lane, for explanations.
type LaneState struct {
	Keys   []contract.Key // the candidates, oldest first; shared, must not be changed
	Cursor contract.Key   // key of the last row that was read
	More   bool           // the table may contain rows after Cursor
}

// State returns what is known of a lane.
func (b *Backlog) State(r Lane) LaneState {
	l := b.lane(r)
	return LaneState{Keys: l.keys[l.head:], Cursor: l.cursor, More: l.more}
}

// Contains reports whether a row is a candidate.
func (s LaneState) Contains(k contract.Key) bool {
	_, found := slices.BinarySearchFunc(s.Keys, k, contract.Key.Compare)
	return found
}

// Lanes returns the lanes of one type, priority and class: the local one, and the non-local
// one if there is any.
func (b *Backlog) Lanes(t slotindex.TypeID, p dispatcherd.Priority, c dispatcherd.DurationClass) []Lane {
	local := Lane{Type: t, Priority: p, Class: c}
	if !b.Shared(t) {
		return []Lane{local}
	}
	return []Lane{local, {t, p, true, c}}
}

// Check returns an error if an invariant does not hold. It visits every candidate, so
// it runs in tests and race builds only.
func (b *Backlog) Check() error {
	cached, shared := 0, 0
	for t := range b.types {
		k := b.types[t]
		if !k.known {
			continue
		}
		if b.Shared(slotindex.TypeID(t)) {
			shared++
		}
		for local := range b.local(slotindex.TypeID(t)) {
			for _, r := range b.Lanes(local.Type, local.Priority, local.Class) {
				cached += b.lane(r).len()
				if err := b.checkLane(r); err != nil {
					return err
				}
			}
		}
	}
	if cached != b.cached {
		return fmt.Errorf("%d candidates are cached, counted %d", cached, b.cached)
	}
	if shared != b.nonLocal.types {
		return fmt.Errorf("%d types are shared, counted %d", shared, b.nonLocal.types)
	}
	return nil
}

func (b *Backlog) checkLane(r Lane) error {
	l := b.lane(r)
	for i := l.head + 1; i < len(l.keys); i++ {
		if !l.keys[i-1].Less(l.keys[i]) {
			return fmt.Errorf("lane %v is out of order at %d", r, i)
		}
	}
	if l.len() > 0 && l.cursor.Less(l.keys[len(l.keys)-1]) {
		return fmt.Errorf("lane %v has a candidate after its cursor", r)
	}
	g := &b.types[r.Type].classes[r.Class]
	if b.waiting.Has(r.Type) != (b.types[r.Type].waiting != 0) || b.types[r.Type].waiting&(1<<r.Class) != 0 != (g.waiting != 0) {
		return fmt.Errorf("type %d is marked as waiting %t", r.Type, b.waiting.Has(r.Type))
	}
	waits := l.len() > 0 || !r.NonLocal && l.starved()
	if marked := g.waiting&r.bit() != 0; marked != waits {
		return fmt.Errorf("lane %v is marked %t with %d candidates", r, marked, l.len())
	}
	if waits && (g.heads[r.position()] != l.best() || (g.bounds&r.bit() != 0) != l.starved()) {
		return fmt.Errorf("lane %v has the head %v, its copy is %v", r, l.best(), g.heads[r.position()])
	}
	return nil
}
