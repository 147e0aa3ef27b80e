// Package slotindex answers one question fast: which free slot should run a
// job of this type? It is the inverted index of article 1 ("the slot pool"),
// and it picks the most specialised slot, so that versatile ones stay
// available for what only they can do.
//
// # Shape
//
// Slots with the same set of types form a class. A type lists the classes
// whose set contains it, smallest set first, and keeps one bit per class that
// says whether the class has a free slot. A class keeps its slots in order of
// SlotID in small blocks, each with one bit per free slot, and remembers the
// smallest free one, its head.
//
//	type ──► classes by size of set, one bit each: has a free slot
//	             │
//	           class ──► head, blocks by SlotID ──► slots, one bit each: free
//
// Taking a slot finds the first set bit of the type, compares the heads of
// the classes of that size, and clears a bit; releasing sets it again. Only
// when a class runs empty, or stops being so, are its types told. So the cost
// depends on the number of classes of equal size that a type has, not on the
// number of slots.
//
// # What it is not
//
// There is no lock, clock, log or map iteration in here: one owner calls one
// method at a time, and the same calls give the same answers. The index knows
// neither jobs nor sessions. It is a hint that can be rebuilt from the
// registrations at any time; the truth about running jobs is in Postgres.
//
// Broken preconditions (releasing a slot that is not taken, using the Ref of
// a removed slot) are bugs of the caller and panic.
package slotindex
