package slotindex

import (
	"cmp"
	"slices"
	"strings"

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
func (x *Index) TypesOf(r Ref) []TypeID { return x.classes[x.at(r).class].types }

// Supports reports whether a registered slot can run jobs of a type.
func (x *Index) Supports(r Ref, t TypeID) bool {
	name := x.types[t].name
	_, found := slices.BinarySearchFunc(x.TypesOf(r), name, func(u TypeID, name string) int {
		return strings.Compare(x.types[u].name, name)
	})
	return found
}

// IsFree reports whether Take may return the slot.
func (x *Index) IsFree(r Ref) bool { return x.at(r).state == free }

// IsDraining reports whether the slot was drained.
func (x *Index) IsDraining(r Ref) bool { return x.at(r).state == draining }

// Slots returns all registered slots by SlotID, including draining ones. It sorts
// them, so it is meant for lists and not for decisions.
func (x *Index) Slots() []Ref {
	refs := make([]Ref, 0, x.live)
	for r := range x.slots {
		if x.slots[r].state != gone {
			refs = append(refs, Ref(r))
		}
	}
	slices.SortFunc(refs, func(a, b Ref) int { return cmp.Compare(x.slots[a].id, x.slots[b].id) })
	return refs
}

// Competitors returns the types that some slot supports together with t, t included.
func (x *Index) Competitors(t TypeID) map[TypeID]bool {
	types := map[TypeID]bool{t: true}
	for _, m := range x.types[t].classes {
		for _, u := range x.classes[m.class].types {
			types[u] = true
		}
	}
	return types
}

// Fewest returns the number of types of the most specialised slot that supports t,
// whether the slot is free, taken or draining. It returns 0 if there is none.
func (x *Index) Fewest(t TypeID) int {
	if ty := &x.types[t]; len(ty.classes) > 0 {
		return int(ty.classes[0].size)
	}
	return 0
}

// FreeFor returns the number of free slots that support t. It visits all classes of
// t. HasFree is faster if only the existence of a free slot matters.
func (x *Index) FreeFor(t TypeID) int {
	n := 0
	for _, m := range x.types[t].classes {
		n += int(x.classes[m.class].free)
	}
	return n
}
