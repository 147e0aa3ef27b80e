package backlog

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Check returns an error if an invariant does not hold.
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

// Lanes returns the lanes of one type, priority and class: the local one, and the non-local
// one if there is any.
func (b *Backlog) Lanes(t slotindex.TypeID, p dispatcherd.Priority, c dispatcherd.DurationClass) []Lane {
	local := Lane{Type: t, Priority: p, Class: c}
	if !b.Shared(t) {
		return []Lane{local}
	}
	return []Lane{local, {t, p, true, c}}
}
