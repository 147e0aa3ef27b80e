// Package slotindex finds the free slot that should run a job of a type, and finds
// it fast. It is the inverted index of article 1 ("the slot pool"). It chooses the
// most specialised slot, so that versatile slots stay free for jobs that only they
// can run.
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
// Taking a slot finds the first set bit of the type, compares the heads of the
// classes of that size, and clears a bit. Releasing a slot sets the bit again. The
// types of a class are updated only when its last free slot is taken or its first
// one is released. So the cost depends on the number of classes of equal size that
// a type has, not on the number of slots.
//
// # What it is not
//
// The package contains no lock, no clock, no log and no iteration over maps. One
// owner calls one method at a time, and the same calls give the same answers. The
// index knows neither jobs nor sessions. The registrations are sufficient to
// rebuild it at any time. The truth about running jobs is in Postgres.
//
// Broken preconditions (releasing a slot that is not taken, using the Ref of
// a removed slot) are bugs of the caller and panic.
package slotindex
