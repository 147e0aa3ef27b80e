// Package slotindex finds the free slot that should run a job of a type. It is the
// inverted index of article 1 ("the slot pool"). It chooses the most specialised
// slot, so that versatile slots stay free for jobs that only they can run.
//
// # Shape
//
// Slots with the same set of types form a class. A type has a list of the classes
// whose set contains it, smallest set first. It keeps one bit per class, which says
// whether the class has a free slot. A class keeps its slots in the order of SlotID,
// in small blocks with one bit per free slot. It remembers its smallest free slot,
// the head.
//
//	type ──► classes by size of set, one bit each: has a free slot
//	             │
//	           class ──► head, blocks by SlotID ──► slots, one bit each: free
//
// Taking a slot finds the first class of the type with a free slot, compares its head
// with the heads of the classes of the same size, and clears a bit. Releasing a slot
// sets the bit again. The bits of the types of a class change only when its last free
// slot is taken or its first one is released. So the cost depends on the number of
// classes of equal size that a type has, not on the number of slots.
//
// # What it is not
//
// The package contains no lock, no clock, no log and no iteration over maps. One
// owner calls one method at a time, and the same calls give the same answers. The
// index knows neither jobs nor sessions. The registrations are sufficient to
// rebuild it at any time. The truth about running jobs is in Postgres.
//
// Broken preconditions (releasing a slot that is not taken, using the Ref of
// a removed slot) are bugs of the caller and cause a panic.
package slotindex
