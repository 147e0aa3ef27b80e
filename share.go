package dispatcherd

import "math/bits"

// Share is the part of the rows of a type that one dispatcher asks for first,
// so that several on one table do not race for the same heads of lanes. Shares
// are proportional to capacity. They are a courtesy: what they say of a row
// never decides who may run it, and views of them may differ for a while.
//
// A row belongs to the share that holds the number of its block: neighbouring
// ids share a block, so that a claim finds its rows in few stretches of the index
// and on few pages, and blocks are dealt out by multiples of the golden ratio, so
// that every share has its part of any few blocks in a row. The zero Share holds
// everything.
//
// The rows of a small burst may all lie in one block, and wait for the slots of
// its owner before others take them. So a block is at most a third of the slots
// of whoever has the fewest, or eight rows: only where all have many slots, and
// claim as many rows at a time, are blocks large.
type Share struct {
	From, To uint32 // numbers From ≤ n < To, of ShareNumbers
	Block    uint8  // a block is 1 << Block ids
}

// Constants of the dealing; the fetch statement contains the first two, too.
const (
	ShareNumbers = 1 << 16
	ShareStep    = 40_503 // ShareNumbers divided by the golden ratio, odd

	smallestBlock = 3
	largestBlock  = 6
	blockPart     = 3 // a block may take that part of a dispatcher's slots
)

// All reports whether everything belongs to the share.
func (s Share) All() bool { return s == Share{} }

// Owns reports whether a row belongs to the share.
func (s Share) Owns(id JobID) bool {
	n := uint32(id>>s.Block) % ShareNumbers * ShareStep % ShareNumbers
	return s.All() || s.From <= n && n < s.To
}

// Others are the slots that other dispatchers have of a type.
type Others struct {
	Before, Behind int // slots of those with smaller and with larger ids
	Least          int // slots of the one that has the fewest, but some
}

// ShareOf returns the share of a dispatcher with that many slots of a type
// beside others. Nobody else means everything.
func ShareOf(own int, others Others) Share {
	elsewhere := others.Before + others.Behind
	if elsewhere <= 0 || own <= 0 {
		return Share{}
	}
	total := own + elsewhere
	from := uint32(others.Before * ShareNumbers / total)
	return Share{
		From: from, To: max(from+1, uint32((others.Before+own)*ShareNumbers/total)),
		Block: blockOf(min(own, others.Least)),
	}
}

// blockOf is the block of dispatchers with so many slots at the least.
func blockOf(slots int) uint8 {
	return uint8(min(max(bits.Len(uint(slots/blockPart))-1, smallestBlock), largestBlock))
}
