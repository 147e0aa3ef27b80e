package slotindex

import (
	"fmt"
	"slices"
)

// TypeID is the number of a type: a small number ≥ 0 that can index an array. A
// type keeps its number as long as a slot supports it or a caller holds it. Then
// the number is reused.
type TypeID int32

// typeEntry is one type in use, or a free element.
type typeEntry struct {
	classes  []membership // ordered by size of the set, then by time of insertion
	bitmap   []uint64     // bit i: classes[i] has a free slot
	open     int32        // set bits in bitmap
	capacity int32        // registered slots, without draining ones
	holders  int32
	name     string // "" for a free element
}

// membership says that the types of a class include this type.
type membership struct {
	class classID
	size  int32 // types in the set of the class
	nth   int32 // position of this type among the types of the class
}

// Hold returns the number of a type and adds one holder. A caller that keeps data
// by TypeID must hold the type.
func (x *Index) Hold(name string) TypeID {
	t := x.intern(name)
	x.types[t].holders++
	return t
}

// Drop removes one holder. A type without holders and slots is forgotten.
func (x *Index) Drop(t TypeID) {
	ty := &x.types[t]
	if ty.holders == 0 {
		panic(fmt.Sprintf("slotindex: drop of type %q (%d), which is not held", ty.name, t))
	}
	ty.holders--
	x.forgetUnused(t)
}

// Lookup returns the number of a type in use.
func (x *Index) Lookup(name string) (TypeID, bool) {
	t, ok := x.byName[name]
	return t, ok
}

// Name returns the name of a type in use.
func (x *Index) Name(t TypeID) string { return x.types[t].name }

func (x *Index) intern(name string) TypeID {
	if t, ok := x.byName[name]; ok {
		return t
	}
	if name == "" {
		panic("slotindex: a type needs a name")
	}
	t := allocate(&x.types, &x.freeTypes)
	x.types[t].name = name
	x.byName[name] = t
	return t
}

func (x *Index) forgetUnused(t TypeID) {
	ty := &x.types[t]
	if ty.holders > 0 || len(ty.classes) > 0 {
		return
	}
	delete(x.byName, ty.name)
	ty.name = ""
	x.freeTypes = append(x.freeTypes, t)
}

// join adds a class without a free slot to the list of one of its types, after the
// classes of the same size.
func (x *Index) join(t TypeID, m membership) {
	ty := &x.types[t]
	at := len(ty.classes)
	for at > 0 && ty.classes[at-1].size > m.size {
		at--
	}
	ty.classes = slices.Insert(ty.classes, at, m)
	x.renumber(t, at)
}

// leave removes a class without a free slot from the list of one of its types.
func (x *Index) leave(t TypeID, at int32) {
	ty := &x.types[t]
	ty.classes = slices.Delete(ty.classes, int(at), int(at)+1)
	x.renumber(t, int(at))
	x.forgetUnused(t)
}

// renumber updates bitmap and positions according to the list, from a position on.
func (x *Index) renumber(t TypeID, from int) {
	ty := &x.types[t]
	words := (len(ty.classes) + 63) / 64
	for len(ty.bitmap) < words {
		ty.bitmap = append(ty.bitmap, 0)
	}
	ty.bitmap = ty.bitmap[:words]
	for w := from / 64; w < words; w++ {
		if w == from/64 {
			ty.bitmap[w] &= 1<<(from%64) - 1
		} else {
			ty.bitmap[w] = 0
		}
	}
	for i := from; i < len(ty.classes); i++ {
		m := ty.classes[i]
		c := &x.classes[m.class]
		c.at[m.nth] = int32(i)
		if c.free > 0 {
			ty.bitmap[i/64] |= 1 << (i % 64)
		}
	}
}
