package slotindex

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/dispatcherd/dispatcherd"
)

type classID int32

// class contains the slots that support exactly the same types. It exists as long as
// one of them is registered, including draining slots.
type class struct {
	head    dispatcherd.SlotID // the smallest id of a free slot, or noHead
	headRef Ref
	free    int32
	slots   int32              // number of registered slots, including draining ones
	low     int32              // all words of bitmap before this one are 0
	bitmap  []uint64           // bit i: order[i] has a free slot
	order   []blockID          // ordered by SlotID; no block is empty
	types   []TypeID           // sorted by name
	set     TypeSet            // the same types
	at      []int32            // at[i]: position of this class in the tree of types[i]
	raised  []int32            // the types, as positions in types, in whose trees a search has corrected this class
	floor   dispatcherd.SlotID // the head in the trees of the other types, ≤ head
}

const noHead = dispatcherd.SlotID(math.MaxInt64)

// classFor returns the class of a set of types. If the class does not exist,
// classFor creates it for its first slot.
func (x *Index) classFor(types []string, first dispatcherd.SlotID) classID {
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
func (x *Index) newClass(first dispatcherd.SlotID) classID {
	id := x.classes.Add()
	size := len(x.key) / 4
	c := class{head: noHead, floor: first, types: make([]TypeID, size), at: make([]int32, size)}
	for i := range c.types {
		c.types[i] = TypeID(binary.LittleEndian.Uint32(x.key[4*i:]))
	}
	c.set = x.setOf(c.types)
	*x.classes.At(id) = c
	x.byTypes[string(x.key)] = id
	for i, t := range c.types {
		x.join(t, membership{head: first, class: id, size: int32(size), nth: int32(i)})
	}
	return id
}

// dropClass forgets a class without slots.
func (x *Index) dropClass(id classID) {
	c := x.classes.At(id)
	x.key = x.key[:0]
	for i, t := range c.types {
		x.key = binary.LittleEndian.AppendUint32(x.key, uint32(t))
		x.leave(t, c.at[i])
	}
	delete(x.byTypes, string(x.key))
	x.classes.Remove(id)
}

// countCapacity adds n to the capacity of every type of a class.
func (x *Index) countCapacity(id classID, n int32) {
	for _, t := range x.classes.At(id).types {
		x.types.At(t).capacity += n
	}
	x.work += len(x.classes.At(id).types)
}

// setFree marks a member of a block as free.
func (x *Index) setFree(r Ref) {
	s := x.slots.At(r)
	b := x.blocks.At(s.block)
	c := x.classes.At(s.class)
	b.free |= 1 << s.at
	word := b.rank / 64
	c.bitmap[word] |= 1 << (b.rank % 64)
	c.low = min(c.low, word)
	x.free++
	c.free++
	if s.id < c.head {
		c.head, c.headRef = s.id, r
		x.reset(c)
	}
}

// clearFree marks a free member of a block as not free.
func (x *Index) clearFree(r Ref) {
	s := x.slots.At(r)
	b := x.blocks.At(s.block)
	c := x.classes.At(s.class)
	if b.free &^= 1 << s.at; b.free == 0 {
		c.bitmap[b.rank/64] &^= 1 << (b.rank % 64)
	}
	x.free--
	c.free--
	if c.headRef == r {
		x.findHead(c)
	}
}

// findHead finds the free slot with the smallest id in a class.
func (x *Index) findHead(c *class) {
	if c.free == 0 {
		c.head = noHead
		return
	}
	for c.bitmap[c.low] == 0 {
		c.low++
	}
	b := x.blocks.At(c.order[int(c.low)<<6|bits.TrailingZeros64(c.bitmap[c.low])])
	c.headRef = b.refs[bits.TrailingZeros32(b.free)]
	c.head = x.slots.At(c.headRef).id
}
