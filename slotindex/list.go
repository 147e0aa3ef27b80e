package slotindex

import "github.com/dispatcherd/dispatcherd"

// Len returns the number of registered slots, draining ones included.
func (x *Index) Len() int { return x.live }

// Free returns the number of free slots.
func (x *Index) Free() int { return x.free }

// SlotID returns the id of a registered slot.
func (x *Index) SlotID(r Ref) dispatcherd.SlotID { return x.at(r).id }

// TypesOf returns the types of a registered slot, sorted by name. The slice is
// shared and must not be changed.
func (x *Index) TypesOf(r Ref) []TypeID { return x.at(r).class.types }

// Supports reports whether a registered slot can run jobs of a type.
func (x *Index) Supports(r Ref, t TypeID) bool { return x.at(r).class.set.Has(t) }

// IsFree reports whether Peek may return the slot.
func (x *Index) IsFree(r Ref) bool { return x.at(r).state == free }

// IsDraining reports whether the slot was retired or drained.
func (x *Index) IsDraining(r Ref) bool {
	s := x.at(r).state
	return s == draining || s == retired
}

// Fewest returns the number of types of the most specialised slot that supports t,
// whether the slot is free, taken or draining. It returns 0 if there is none. It is
// fast if no slot that supports t is free.
func (x *Index) Fewest(t TypeID) int {
	classes := x.types[t].classes
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
// contain t. FreeAt, TypesAt and SlotsAt describe the slots with one of these sets, by
// its position. So a caller can divide a visit of all slots that support t. The
// positions may change when slots are added or removed.
func (x *Index) Classes(t TypeID) int { return len(x.types[t].classes) }

// FreeAt returns the number of free slots.
func (x *Index) FreeAt(t TypeID, i int) int { return len(x.classAt(t, i).free) }

// TypesAt returns the types of the slots. The set is shared and must not be changed.
func (x *Index) TypesAt(t TypeID, i int) TypeSet { return x.classAt(t, i).set }

// SlotsAt returns the slots that are not draining, in no order. The slice is shared and must not be changed.
func (x *Index) SlotsAt(t TypeID, i int) []Ref { return x.classAt(t, i).members }

func (x *Index) classAt(t TypeID, i int) *class { return x.types[t].classes[i].class }

// FreeFor returns the number of free slots that support t, or a part of it if it has visited
// a number of classes before. HasFree is faster if only the existence of a free slot matters.
func (x *Index) FreeFor(t TypeID, classes int) (n int) {
	tree := x.types[t].classes
	for next := []int{0}; len(next) > 0 && classes > 0; {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		if at >= len(tree) || tree[tree[at].best].head == noHead { // a head is a lower bound, so no class of the subtree has a free slot
			continue
		}
		classes--
		n += x.FreeAt(t, at)
		next = append(next, 2*at+2, 2*at+1)
	}
	return n
}
