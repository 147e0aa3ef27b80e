package slotindex

import (
	"cmp"
	"math/bits"
	"slices"
)

// TypeSet is a set of types: the words of a bitmap that are not 0, in ascending
// order. A set of thousands of types consists of about a hundred words.
type TypeSet []word

// word contains the types index·wordBits to index·wordBits+wordBits-1.
type word struct {
	bits  uint64
	index int32
}

const wordBits = 64

// Has reports whether the set contains a type.
func (s TypeSet) Has(t TypeID) bool {
	i, found := slices.BinarySearchFunc(s, int32(t/wordBits), func(w word, index int32) int { return cmp.Compare(w.index, index) })
	return found && s[i].bits>>(t%wordBits)&1 == 1
}

// TypeMap is a set of types that changes often: bit t%64 of element t/64 stands for
// type t.
type TypeMap []uint64

// Set adds or removes a type.
func (m *TypeMap) Set(t TypeID, in bool) {
	for int(t/wordBits) >= len(*m) {
		*m = append(*m, 0)
	}
	if w := &(*m)[t/wordBits]; in {
		*w |= 1 << (t % wordBits)
	} else {
		*w &^= 1 << (t % wordBits)
	}
}

// Add adds the types of a set.
func (m *TypeMap) Add(set TypeSet) {
	if last := len(set) - 1; last >= 0 && int(set[last].index) >= len(*m) {
		*m = append(*m, make(TypeMap, int(set[last].index)+1-len(*m))...)
	}
	for _, w := range set {
		(*m)[w.index] |= w.bits
	}
}

// Has reports whether the set contains a type.
func (m TypeMap) Has(t TypeID) bool {
	return int(t/wordBits) < len(m) && m[t/wordBits]>>(t%wordBits)&1 == 1
}

// EachSupported calls f for the types of a registered slot that are in one map and
// not in the other. It visits the words of the set of the slot, not each type. f may
// change the maps.
func (x *Index) EachSupported(r Ref, in, except TypeMap, f func(TypeID)) {
	set := x.at(r).class.set
	x.work += len(set)
	for _, w := range set {
		if int(w.index) >= len(in) {
			return
		}
		both := w.bits & in[w.index]
		if int(w.index) < len(except) {
			both &^= except[w.index]
		}
		for ; both != 0; both &= both - 1 {
			f(TypeID(w.index)*wordBits + TypeID(bits.TrailingZeros64(both)))
		}
	}
}

// setOf returns the set of some types.
func setOf(types []TypeID) (set TypeSet) {
	for _, t := range slices.Sorted(slices.Values(types)) {
		if last := len(set) - 1; last < 0 || set[last].index != int32(t/wordBits) {
			set = append(set, word{index: int32(t / wordBits)})
		}
		set[len(set)-1].bits |= 1 << (t % wordBits)
	}
	return set
}
