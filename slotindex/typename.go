package slotindex

// TypeID is the number of a type: a small number ≥ 0 that can index an array. A
// type keeps its number as long as a slot supports it or a caller holds it. Then
// the number is reused.
type TypeID int32

// typeEntry is one type in use, or a free element.
type typeEntry struct {
	classes  []membership // a tree
	capacity int32        // registered slots, without draining ones
	held     bool
	name     string // "" for a free element
}

// Hold returns the number of a type, which stays in use until Drop. A caller that keeps
// data by TypeID must hold the type.
func (x *Index) Hold(name string) TypeID {
	t := x.intern(name)
	x.types[t].held = true
	return t
}

// Drop ends Hold. A type that is not held and has no slots is forgotten.
func (x *Index) Drop(t TypeID) {
	x.types[t].held = false
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
	t := place(&x.types, &x.unusedTypes)
	x.types[t].name = name
	x.byName[name] = t
	return t
}

func (x *Index) forgetUnused(t TypeID) {
	ty := x.types[t]
	if ty.held || len(ty.classes) > 0 {
		return
	}
	delete(x.byName, ty.name)
	*ty = typeEntry{}
	x.unusedTypes = append(x.unusedTypes, t)
}
