package slotindex

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd"
)

// Ref is the handle of a registered slot: a small number ≥ 0 that can index an
// array. It is reused after Remove.
type Ref int32

// Index is the inverted index from types to slots. Create it with New; it has
// a single owner.
type Index struct {
	slots       []*slot // by Ref
	unusedSlots []Ref
	types       []*typeEntry // by TypeID
	unusedTypes []TypeID
	byName      map[string]TypeID
	byTypes     map[string]*class // the key contains the TypeIDs, see classFor
	key         []byte            // buffer for a key of byTypes
	live        int               // registered slots
	free        int               // free slots
	work        int               // steps made so far; see Work
}

// slot is one registered slot. A draining slot is no member of its class.
type slot struct {
	id    dispatcherd.SlotID
	ref   Ref
	class *class
	at    int32 // position in class.members
	place int32 // in class.free
	state state
}

// byID is the order of class.free.
type byID struct{}

// Before compares the ids.
func (byID) Before(a, b *slot) bool { return a.id < b.id }

// Place is the position in class.free.
func (byID) Place(s *slot) *int32 { return &s.place }

type state uint8

const (
	gone     state = iota // the Ref is not in use
	free                  // Peek may return it
	taken                 // reserved or busy
	draining              // gets no more jobs; a job may still run on it
	retired               // like draining, but still counts as capacity
)

// New returns an empty index.
func New() *Index {
	return &Index{byName: map[string]TypeID{}, byTypes: map[string]*class{}}
}

// AddTaken registers a slot that is not free. types must be sorted, unique and not empty.
// id must not be registered. Ids may come in any order; ascending order is fastest.
// AddTaken does not keep the slice.
func (x *Index) AddTaken(id dispatcherd.SlotID, types []string) Ref {
	c := x.classFor(types, id)
	r := place(&x.slots, &x.unusedSlots)
	*x.slots[r] = slot{id: id, ref: r, class: c, state: taken}
	c.slots++
	c.least = min(c.least, id)
	c.enter(x.slots[r])
	x.live++
	x.countCapacity(c, +1)
	return r
}

// Work returns how many steps the index has made so far. Each step takes about the
// same time. The difference between two calls is a measure of the cost that does
// not depend on a clock.
func (x *Index) Work() int { return x.work }

// Capacity returns the number of registered slots that support t, free or
// taken, without draining ones: the capacity in the rarity bonus.
func (x *Index) Capacity(t TypeID) int { return int(x.types[t].capacity) }

// HasFree reports whether Peek would find a slot.
func (x *Index) HasFree(t TypeID) bool { return x.bestClass(t) != nil }

// Peek chooses among the free slots that support t. It returns the slot with the
// fewest types, and among equals the one with the smallest SlotID. It returns false
// if no slot that supports t is free.
func (x *Index) Peek(t TypeID) (Ref, bool) {
	c := x.bestClass(t)
	if c == nil {
		return 0, false
	}
	return c.free[0].ref, true
}

// Take takes a free slot.
func (x *Index) Take(r Ref) {
	s := x.at(r)
	if s.state != free {
		panic(fmt.Sprintf("slotindex: take of slot %d (ref %d), which is %v", s.id, r, s.state))
	}
	s.state = taken
	x.clearFree(s)
}

// Release makes a taken slot free. A draining or retired slot stays as it is.
func (x *Index) Release(r Ref) {
	s := x.slots[r]
	switch s.state {
	case draining, retired:
	case taken:
		s.state = free
		x.setFree(s)
	default:
		panic(fmt.Sprintf("slotindex: release of slot %d (ref %d), which is %v", s.id, r, s.state))
	}
}

// Retire takes a slot out of service: it gets no more jobs. The cost does not depend on
// the number of types. The slot counts as capacity until Drain or Remove, whose cost
// depends on that number. A draining slot stays as it is.
func (x *Index) Retire(r Ref) {
	s := x.at(r)
	switch s.state {
	case free:
		x.clearFree(s)
		s.state = retired
	case taken:
		s.state = retired
	}
}

// Drain takes a slot out of service: it gets no more jobs and no longer counts as
// capacity, but stays registered until Remove. Draining twice is allowed.
func (x *Index) Drain(r Ref) {
	s := x.at(r)
	if s.state == draining {
		return
	}
	x.Retire(r)
	x.leaveClass(s)
	s.state = draining
	x.countCapacity(s.class, -1)
}

// Restore puts a slot that was retired or drained into service again. It is taken.
func (x *Index) Restore(r Ref) {
	s := x.at(r)
	if s.state == draining {
		s.class.enter(s)
		x.countCapacity(s.class, +1)
	}
	s.state = taken
}

// Remove unregisters the slot, whatever its state. Its Ref becomes invalid and
// will be reused.
func (x *Index) Remove(r Ref) {
	x.Drain(r)
	c := x.slots[r].class
	*x.slots[r] = slot{}
	x.unusedSlots = append(x.unusedSlots, r)
	x.live--
	if c.slots--; c.slots == 0 {
		x.dropClass(c)
	}
}

// place returns the number of an element that is not in use: the one that was removed last, or a new one.
func place[ID ~int32, E any](elements *[]*E, unused *[]ID) ID {
	if last := len(*unused) - 1; last >= 0 {
		id := (*unused)[last]
		*unused = (*unused)[:last]
		return id
	}
	*elements = append(*elements, new(E))
	return ID(len(*elements) - 1)
}

// at returns the registered slot of a Ref.
func (x *Index) at(r Ref) *slot {
	s := x.slots[r]
	if s.state == gone {
		panic(fmt.Sprintf("slotindex: ref %d names no registered slot", r))
	}
	return s
}

func (s state) String() string {
	return [...]string{"gone", "free", "taken", "draining", "retired"}[s]
}
