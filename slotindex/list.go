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

// Class describes the slots in service that have the same set of types.
type Class struct {
	Types []TypeID           // sorted by name; shared, must not be changed
	Slots int                // in service: free or taken
	Free  int                // of those, free
	First dispatcherd.SlotID // the free slot with the smallest id, if Free > 0
}

// Classes appends the classes that support t to list and returns it. They are in
// the order in which Take considers them: by number of types, then by smallest free
// id, classes without a free slot last.
func (x *Index) Classes(t TypeID, list []Class) []Class {
	start := len(list)
	for _, m := range x.types[t].classes {
		c := &x.classes[m.class]
		d := Class{Types: c.types, Free: int(c.free), First: c.head}
		for _, b := range c.order {
			d.Slots += int(x.blocks[b].n)
		}
		list = append(list, d)
	}
	slices.SortStableFunc(list[start:], func(a, b Class) int {
		return cmp.Or(cmp.Compare(len(a.Types), len(b.Types)), cmp.Compare(a.First, b.First))
	})
	for i := range list[start:] {
		if d := &list[start+i]; d.Free == 0 {
			d.First = 0
		}
	}
	return list
}

// Fewest returns how many types the most specialised slots that support t have,
// whether free, taken or draining; 0 if there are none.
func (x *Index) Fewest(t TypeID) int {
	if ty := &x.types[t]; len(ty.classes) > 0 {
		return int(ty.classes[0].size)
	}
	return 0
}

// FreeFor returns the number of free slots that support t. It adds up the
// classes of t; to know whether there is one, use HasFree.
func (x *Index) FreeFor(t TypeID) int {
	n := 0
	for _, m := range x.types[t].classes {
		n += int(x.classes[m.class].free)
	}
	return n
}
