package slotindex

import (
	"slices"
	"sort"

	"github.com/dispatcherd/dispatcherd"
)

type blockID int32

// blockSize makes a block two cache lines long.
const blockSize = 29

// block contains some slots of one class with consecutive ranks, sorted by SlotID.
// Blocks are the lower level of a B-tree with two levels, whose root is
// class.order. An insertion moves at most the refs of one block and the block
// numbers of one class, whatever the order of the ids.
type block struct {
	free uint32 // bit i: refs[i] is free
	n    int32  // refs in use, ≥ 1 while the block is in use
	rank int32  // position in class.order
	refs [blockSize]Ref
}

// insert adds a slot that is not free to its class.
func (x *Index) insert(id classID, r Ref) {
	c := x.classes.At(id)
	slotID := x.slots.At(r).id
	// The last block that starts before the slot, or the first of all.
	rank := max(0, x.firstBlockAfter(c, slotID)-1)
	switch {
	case len(c.order) == 0:
		x.addBlock(c, 0)
	case x.blocks.At(c.order[rank]).n < blockSize:
	case rank == len(c.order)-1 && x.lastID(c.order[rank]) < slotID:
		rank++ // ascending ids leave full blocks
		x.addBlock(c, rank)
	default:
		x.split(c, rank)
		if x.firstID(c.order[rank+1]) < slotID {
			rank++
		}
	}
	at := c.order[rank]
	b := x.blocks.At(at)
	i := int(b.n)
	for i > 0 && x.slots.At(b.refs[i-1]).id > slotID {
		i--
	}
	b.n++
	copy(b.refs[i+1:b.n], b.refs[i:])
	b.refs[i] = r
	low := b.free & (1<<i - 1)
	b.free = low | (b.free&^low)<<1
	x.place(at, i)
}

// erase removes a slot that is not free from its class.
func (x *Index) erase(r Ref) {
	s := x.slots.At(r)
	b := x.blocks.At(s.block)
	i := int(s.at)
	copy(b.refs[i:], b.refs[i+1:b.n])
	b.n--
	low := b.free & (1<<i - 1)
	b.free = low | (b.free&^low)>>1
	x.place(s.block, i)
	c := x.classes.At(s.class)
	rank := int(b.rank)
	if b.n == 0 {
		x.dropBlock(c, rank)
		return
	}
	// Small neighbours are merged, so that slots which are added and removed cannot
	// leave many blocks with one slot each.
	x.merge(c, rank)
	x.merge(c, rank-1)
}

// merge moves the block after a rank into the one at the rank, if both exist and
// together fill no more than half a block.
func (x *Index) merge(c *class, rank int) {
	if rank < 0 || rank+1 >= len(c.order) {
		return
	}
	lower, upper := x.blocks.At(c.order[rank]), x.blocks.At(c.order[rank+1])
	if lower.n+upper.n > blockSize/2 {
		return
	}
	n := int(lower.n)
	lower.n += int32(copy(lower.refs[n:], upper.refs[:upper.n]))
	lower.free |= upper.free << n
	x.place(c.order[rank], n)
	x.dropBlock(c, rank+1)
	x.rerank(c, rank)
}

// dropBlock frees the block at a rank.
func (x *Index) dropBlock(c *class, rank int) {
	x.blocks.Remove(c.order[rank])
	c.order = slices.Delete(c.order, rank, rank+1)
	x.rerank(c, rank)
}

// place updates the positions of the slots of a block, from a position on.
func (x *Index) place(id blockID, from int) {
	b := x.blocks.At(id)
	for i := from; i < int(b.n); i++ {
		s := x.slots.At(b.refs[i])
		s.block, s.at = id, uint8(i)
	}
}

// split moves the upper half of a full block into a new block after it.
func (x *Index) split(c *class, rank int) {
	const half = blockSize / 2
	upperID := x.addBlock(c, rank+1)
	lower, upper := x.blocks.At(c.order[rank]), x.blocks.At(upperID)
	upper.n = int32(copy(upper.refs[:], lower.refs[half:]))
	upper.free = lower.free >> half
	lower.n = half
	lower.free &= 1<<half - 1
	x.place(upperID, 0)
	x.rerank(c, rank)
}

// addBlock inserts an empty block at a rank.
func (x *Index) addBlock(c *class, rank int) blockID {
	id := x.blocks.Add()
	c.order = slices.Insert(c.order, rank, id)
	x.rerank(c, rank)
	return id
}

// rerank updates bitmap and ranks according to the order, from a rank on.
func (x *Index) rerank(c *class, from int) {
	words := (len(c.order) + 63) / 64
	for len(c.bitmap) < words {
		c.bitmap = append(c.bitmap, 0)
	}
	c.bitmap = c.bitmap[:words]
	c.low = min(c.low, int32(from/64))
	x.work += len(c.order) - from
	for i := from; i < len(c.order); i++ {
		b := x.blocks.At(c.order[i])
		b.rank = int32(i)
		bit := uint64(1) << (i % 64)
		c.bitmap[i/64] &^= bit
		if b.free != 0 {
			c.bitmap[i/64] |= bit
		}
	}
	if used := len(c.order) % 64; used != 0 {
		c.bitmap[words-1] &= 1<<used - 1
	}
}

// firstBlockAfter returns the rank of the first block whose slots all lie after an
// id. If there is none, it returns the number of blocks.
func (x *Index) firstBlockAfter(c *class, id dispatcherd.SlotID) int {
	return sort.Search(len(c.order), func(rank int) bool { return x.firstID(c.order[rank]) > id })
}

func (x *Index) firstID(id blockID) dispatcherd.SlotID {
	return x.slots.At(x.blocks.At(id).refs[0]).id
}

func (x *Index) lastID(id blockID) dispatcherd.SlotID {
	b := x.blocks.At(id)
	return x.slots.At(b.refs[b.n-1]).id
}
