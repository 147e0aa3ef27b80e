// Package slotindex finds the free slot that should run a job of a type, and finds
// it fast. It is the inverted index of article 1 ("the slot pool"). It chooses the
// most specialised slot, so that versatile slots stay free for jobs that only they
// can run.
//
// # Shape
//
// Slots with the same set of types form a class. A type keeps the classes whose set
// contains it in a tree: the smallest set first, then the smallest free SlotID. A
// class keeps its free slots in a heap, whose first one, the head, has the smallest id.
//
//	type ──► tree of classes: smallest set, then smallest head
//	             │
//	           class ──► heap of free slots: smallest SlotID
//
// # Cost
//
// Peek returns the head of the class at the root of the tree. Take does not change the trees
// of the other types of the slot. These trees contain lower bounds, which a search
// corrects when it meets them (see membership). So taking, releasing and retiring a slot does
// not depend on the number of its types, and only on the logarithm of the number of free slots
// of its class. Adding and removing a slot costs time in proportion to its types, with the
// logarithm of the number of classes as a factor. Work counts these steps.
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
