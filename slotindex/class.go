package slotindex

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/heap"
)

// class contains the slots that support exactly the same types. It exists as long as
// one of them is registered, including draining slots.
type class struct {
	free    heap.Heap[*slot, byID] // the first one has the smallest id
	head    dispatcherd.SlotID     // the smallest id of a free slot, or noHead
	least   dispatcherd.SlotID     // the smallest id of all slots so far
	slots   int32                  // number of registered slots, including draining ones
	members []Ref                  // registered slots without draining ones, in no order
	types   []TypeID               // sorted by name
	set     TypeSet                // the same types
	key     string                 // of Index.byTypes
	at      []int32                // at[i]: position of this class in the tree of types[i]
	raised  []int32                // the types, as positions in types, in whose trees a search has corrected this class
	floor   dispatcherd.SlotID     // the head in the trees of the other types, ≤ head
}

const noHead = dispatcherd.SlotID(math.MaxInt64)

// classFor returns the class of a set of types. If the class does not exist,
// classFor creates it for its first slot.
func (x *Index) classFor(types []string, first dispatcherd.SlotID) *class {
	x.key = x.key[:0]
	for i, name := range types {
		if i > 0 && types[i-1] >= name {
			panic(fmt.Sprintf("slotindex: types must be sorted and unique, but %q comes before %q", types[i-1], name))
		}
		x.key = binary.LittleEndian.AppendUint32(x.key, uint32(x.intern(name)))
	}
	if len(types) == 0 {
		panic("slotindex: a slot needs at least one type")
	}
	x.work += len(types)
	if c, ok := x.byTypes[string(x.key)]; ok {
		return c
	}
	return x.newClass(first)
}

// newClass creates the class whose types are in x.key.
func (x *Index) newClass(first dispatcherd.SlotID) *class {
	size := len(x.key) / 4
	c := &class{
		head: noHead, least: first, floor: first, key: string(x.key), types: make([]TypeID, size), at: make([]int32, size),
	}
	for i := range c.types {
		c.types[i] = TypeID(binary.LittleEndian.Uint32(x.key[4*i:]))
	}
	c.set = setOf(c.types)
	x.byTypes[c.key] = c
	for i, t := range c.types {
		x.join(t, membership{head: first, class: c, size: int32(size), nth: int32(i)})
	}
	return c
}

// dropClass forgets a class without slots.
func (x *Index) dropClass(c *class) {
	delete(x.byTypes, c.key)
	for i, t := range c.types {
		x.leave(t, c.at[i])
	}
}

// countCapacity adds n to the capacity of every type of a class.
func (x *Index) countCapacity(c *class, n int32) {
	for _, t := range c.types {
		x.types[t].capacity += n
	}
	x.work += len(c.types)
}

// enter makes a slot that is not free a member.
func (c *class) enter(s *slot) {
	s.at = int32(len(c.members))
	c.members = append(c.members, s.ref)
}

// leaveClass removes a slot that is not free from the members of its class.
func (x *Index) leaveClass(s *slot) {
	c := s.class
	last := len(c.members) - 1
	moved := c.members[last]
	c.members[s.at], x.slots[moved].at = moved, s.at
	c.members = c.members[:last]
}

// setFree adds a member to the free slots of its class.
func (x *Index) setFree(s *slot) {
	c := s.class
	c.free.Put(s)
	x.free++
	if s.id < c.head {
		c.head = s.id
		x.reset(c)
	}
}

// clearFree removes a slot from the free slots of its class.
func (x *Index) clearFree(s *slot) {
	c := s.class
	c.free.Remove(s)
	x.free--
	if c.head = noHead; len(c.free) > 0 {
		c.head = c.free[0].id
	}
}
