package slotindex

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

// Check compares all redundant data (counters, bitmaps, heads, positions) with the
// slots and returns an error for the first difference. It visits the complete
// index, so only tests and race builds call it.
func (x *Index) Check() error {
	live, freeSlots := 0, 0
	perType := make([]int, x.types.Len())
	members := make([]int, x.classes.Len())
	registered := make([]int, x.classes.Len())
	for r := range Ref(x.slots.Len()) {
		s := x.slots.At(r)
		if s.state == gone {
			continue
		}
		live++
		registered[s.class]++
		if s.state == free {
			freeSlots++
		}
		if s.state == draining {
			continue
		}
		members[s.class]++
		if got := x.blocks.At(s.block).refs[s.at]; got != r {
			return fmt.Errorf("slot %d (ref %d) should be at %d of block %d, where ref %d is", s.id, r, s.at, s.block, got)
		}
		for _, t := range x.classes.At(s.class).types {
			perType[t]++
		}
	}
	if live != x.live || freeSlots != x.free {
		return fmt.Errorf("%d slots, %d free, but %d and %d were counted", live, freeSlots, x.live, x.free)
	}
	for id := range classID(x.classes.Len()) {
		if err := x.checkClass(id, registered[id], members[id]); err != nil {
			return fmt.Errorf("class %d: %w", id, err)
		}
	}
	for t := range TypeID(x.types.Len()) {
		if err := x.checkType(t, perType[t]); err != nil {
			return fmt.Errorf("type %d %q: %w", t, x.types.At(t).name, err)
		}
	}
	return nil
}

func (x *Index) checkClass(id classID, registered, members int) error {
	c := x.classes.At(id)
	if int(c.slots) != registered || (registered == 0) != (len(c.types) == 0) {
		return fmt.Errorf("%d slots registered, %d counted, %d types", registered, c.slots, len(c.types))
	}
	if registered == 0 {
		return nil
	}
	found, freeFound := 0, 0
	if sum := setSize(c.set); sum != len(c.types) || len(c.raised) > len(c.types) {
		return fmt.Errorf("%d types in the set, %d in the list, %d raised", sum, len(c.types), len(c.raised))
	}
	head, last := noHead, dispatcherd.SlotID(math.MinInt64)
	for rank, blockID := range c.order {
		b := x.blocks.At(blockID)
		if b.n < 1 || int(b.rank) != rank || b.free>>b.n != 0 || bit(c.bitmap, rank) != (b.free != 0) {
			return fmt.Errorf("block %d at rank %d says rank %d, n %d, free %b; class says %b", blockID, rank, b.rank, b.n, b.free, c.bitmap)
		}
		for i, r := range b.refs[:b.n] {
			s := x.slots.At(r)
			isFree := b.free>>i&1 == 1
			if s.id <= last || s.class != id || isFree != (s.state == free) {
				return fmt.Errorf("slot %d (ref %d) of class %d, %v, comes after %d with free %v", s.id, r, s.class, s.state, last, isFree)
			}
			if isFree && head == noHead {
				head = s.id
			}
			last = s.id
		}
		found += int(b.n)
		freeFound += bits.OnesCount32(b.free)
	}
	if found != members || freeFound != int(c.free) || head != c.head || onesCount(c.bitmap) > len(c.order) {
		return fmt.Errorf("%d members, %d free, head %d; found %d, %d, %d", members, c.free, c.head, found, freeFound, head)
	}
	if head != noHead && x.slots.At(c.headRef).id != head {
		return fmt.Errorf("head %d is not what ref %d names", head, c.headRef)
	}
	if i := slices.IndexFunc(c.bitmap, func(w uint64) bool { return w != 0 }); i >= 0 && i < int(c.low) {
		return fmt.Errorf("word %d is not 0 but low is %d", i, c.low)
	}
	return nil
}

func (x *Index) checkType(t TypeID, capacity int) error {
	ty := x.types.At(t)
	used := ty.holders > 0 || len(ty.classes) > 0
	if known, ok := x.byName[ty.name]; used != (ty.name != "") || used && (!ok || known != t) {
		return fmt.Errorf("%d holders, %d classes, known as %d (%v)", ty.holders, len(ty.classes), known, ok)
	}
	if int(ty.capacity) != capacity {
		return fmt.Errorf("capacity %d, counted %d", capacity, ty.capacity)
	}
	for i := range ty.classes {
		m := &ty.classes[i]
		c := x.classes.At(m.class)
		if c.types[m.nth] != t || int(c.at[m.nth]) != i || int(m.size) != len(c.types) || !c.set.Has(t) {
			return fmt.Errorf("class %d of size %d at %d: type %d, says it is at %d", m.class, m.size, i, c.types[m.nth], c.at[m.nth])
		}
		if m.head > c.head || (m.head != c.floor) != slices.Contains(c.raised, m.nth) {
			return fmt.Errorf("class %d at %d: head %d; class says head %d, floor %d, raised %d", m.class, i, m.head, c.head, c.floor, c.raised)
		}
	}
	return checkBest(ty.classes)
}

// checkBest compares the best memberships of all subtrees of a tree.
func checkBest(tree []membership) error {
	for i, m := range slices.Backward(tree) {
		best, known := min(m.best, int32(len(tree)-1)), false
		for _, j := range []int{i, 2*i + 1, 2*i + 2} {
			if j >= len(tree) {
				break
			}
			candidate := int32(i)
			if j > i {
				candidate = tree[j].best
			}
			known = known || candidate == best
			if tree[candidate].before(&tree[best]) {
				return fmt.Errorf("class %d should be before class %d", tree[candidate].class, tree[best].class)
			}
		}
		if !known {
			return fmt.Errorf("position %d is not in the subtree of position %d", best, i)
		}
	}
	return nil
}

func bit(bitmap []uint64, i int) bool { return bitmap[i/64]>>(i%64)&1 == 1 }

func onesCount(bitmap []uint64) int {
	n := 0
	for _, w := range bitmap {
		n += bits.OnesCount64(w)
	}
	return n
}

func setSize(set TypeSet) int {
	n := 0
	for _, w := range set {
		n += bits.OnesCount64(w.bits)
	}
	return n
}
