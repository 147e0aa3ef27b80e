package slotindex

import (
	"cmp"
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

// Len returns the number of registered slots, draining ones included.
func (x *Index) Len() int { return x.live }

// Free returns the number of free slots.
func (x *Index) Free() int { return x.free }

// SlotID returns the id of a registered slot.
func (x *Index) SlotID(r Ref) dispatcherd.SlotID { return x.at(r).id }

// TypesOf returns the types of a registered slot, sorted by name. The slice is
// shared and must not be changed; it is valid until the slot is removed.
func (x *Index) TypesOf(r Ref) []TypeID { return x.classes.At(x.at(r).class).types }

// Supports reports whether a registered slot can run jobs of a type.
func (x *Index) Supports(r Ref, t TypeID) bool { return x.classes.At(x.at(r).class).set.Has(t) }

// IsFree reports whether Take may return the slot.
func (x *Index) IsFree(r Ref) bool { return x.at(r).state == free }

// IsDraining reports whether the slot was retired or drained.
func (x *Index) IsDraining(r Ref) bool {
	s := x.at(r).state
	return s == draining || s == retired
}

// Slots returns all registered slots by SlotID, including draining ones. It sorts
// them, so it is meant for lists and not for decisions.
func (x *Index) Slots() []Ref {
	refs := make([]Ref, 0, x.live)
	for r := range Ref(x.slots.Len()) {
		if x.slots.At(r).state != gone {
			refs = append(refs, r)
		}
	}
	slices.SortFunc(refs, func(a, b Ref) int { return cmp.Compare(x.slots.At(a).id, x.slots.At(b).id) })
	return refs
}

// Competitors returns the types that some slot supports together with t, t included.
func (x *Index) Competitors(t TypeID) TypeSet {
	x.dense[t/wordBits] |= 1 << (t % wordBits)
	for _, m := range x.types.At(t).classes {
		for _, w := range x.classes.At(m.class).set {
			x.dense[w.index] |= w.bits
		}
	}
	return x.takeDense()
}

// Fewest returns the number of types of the most specialised slot that supports t,
// whether the slot is free, taken or draining. It returns 0 if there is none. It is
// fast if no slot that supports t is free.
func (x *Index) Fewest(t TypeID) int {
	classes := x.types.At(t).classes
	if len(classes) == 0 {
		return 0
	}
	if !x.HasFree(t) {
		return int(classes[classes[0].best].size) // only size orders classes without a free slot
	}
	fewest := classes[0].size
	for i := range classes {
		fewest = min(fewest, classes[i].size)
	}
	return int(fewest)
}

// Classes returns the number of different sets of types, of registered slots, that
// contain t. It is the cost of FreeFor.
func (x *Index) Classes(t TypeID) int { return len(x.types.At(t).classes) }

// FreeFor returns the number of free slots that support t. It visits all classes of
// t. HasFree is faster if only the existence of a free slot matters.
func (x *Index) FreeFor(t TypeID) int {
	n := 0
	for _, m := range x.types.At(t).classes {
		n += int(x.classes.At(m.class).free)
	}
	return n
}
