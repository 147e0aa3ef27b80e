package contract

import (
	"math/bits"

	"github.com/dispatcherd/dispatcherd"
)

// Share is the part of the rows of a type that one dispatcher reads first. With
// shares, several dispatchers on one table do not contend for the same heads of
// lanes. Shares are proportional to capacity. They are hints: a share never decides
// which dispatcher may run a row. The dispatchers may temporarily compute different
// shares.
//
// A row belongs to the share that contains the number of its block. The zero
// Share contains everything. Consecutive ids form a block, so that a claim finds
// its rows in few ranges of the index and on few pages. The number of the n-th
// block is n * ShareStep modulo ShareNumbers. Because ShareStep is based on the
// golden ratio, the numbers of a few consecutive blocks are spread evenly over
// all shares.
//
// All rows of a small burst may be in one block. They then wait for the slots of
// the block's owner before other dispatchers take them. Therefore a block is at
// most a third of the slots of the dispatcher with the fewest slots, but at least
// eight rows. A block is large only if every dispatcher has many slots. Such a
// dispatcher also claims many rows at a time.
type Share struct {
	From, To uint32 // numbers From ≤ n < To, out of ShareNumbers
	Block    uint8  // a block is 1 << Block ids
}

// Constants of the partitioning. The fetch statement contains the first two as
// well.
const (
	ShareNumbers = 1 << 16
	ShareStep    = 40_503 // ShareNumbers divided by the golden ratio, odd

	smallestBlock = 3
	largestBlock  = 6
	blockPart     = 3 // a block has at most a third of a dispatcher's slots, but at least 1 << smallestBlock ids
)

// All reports whether every row belongs to the share.
func (s Share) All() bool { return s == Share{} }

// Owns reports whether a row belongs to the share.
func (s Share) Owns(id dispatcherd.JobID) bool {
	n := uint32(id>>s.Block) % ShareNumbers * ShareStep % ShareNumbers
	return s.All() || s.From <= n && n < s.To
}

// Others are the slots that other dispatchers have of a type.
type Others struct {
	SmallerIDs, LargerIDs int // slots of the dispatchers with smaller and with larger ids
	Least                 int // slots of the dispatcher that has the fewest, but at least one
}

// ShareOf returns the share of a dispatcher that has the given number of slots of a
// type. others are the slots of other dispatchers. Without them the share contains
// everything.
func ShareOf(own int, others Others) Share {
	remote := others.SmallerIDs + others.LargerIDs
	if remote <= 0 || own <= 0 {
		return Share{}
	}
	total := own + remote
	from := uint32(others.SmallerIDs * ShareNumbers / total)
	return Share{
		From: from, To: max(from+1, uint32((others.SmallerIDs+own)*ShareNumbers/total)),
		Block: blockOf(min(own, others.Least)),
	}
}

// blockOf returns the value of Share.Block if every dispatcher has at least that
// many slots.
func blockOf(slots int) uint8 {
	return uint8(min(max(bits.Len(uint(slots/blockPart))-1, smallestBlock), largestBlock))
}
