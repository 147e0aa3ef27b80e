// Package heap is a binary heap of elements that know their places, so that any of them
// can be removed.
package heap

// Order compares the elements of a heap. It is a type without fields, so a heap is no larger
// than its elements, and an element can be in several heaps.
type Order[E any] interface {
	// Before reports whether an element must come out of the heap before another one.
	Before(a, b E) bool
	// Place is the position of an element in the heap, counted from 1; 0 = not in it. Only the heap changes it.
	Place(e E) *int32
}

// Heap contains elements; the first one precedes all others. The children of position i are
// at 2i+1 and 2i+2. The zero value is empty and ready.
type Heap[E any, O Order[E]] []E

// Put adds an element, or restores the order after a change of an element.
func (h *Heap[E, O]) Put(e E) {
	var o O
	at := int(*o.Place(e)) - 1
	if at < 0 {
		at = len(*h)
		*h = append(*h, e)
	}
	h.settle(e, at)
}

// Remove removes an element, if it is in the heap.
func (h *Heap[E, O]) Remove(e E) {
	var o O
	at, last := int(*o.Place(e))-1, len(*h)-1
	if at < 0 {
		return
	}
	moved := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	if *o.Place(e) = 0; at < last {
		h.settle(moved, at)
	}
}

// First returns the first element; ok is false without elements.
func (h Heap[E, O]) First() (e E, ok bool) {
	if len(h) > 0 {
		return h[0], true
	}
	return e, false
}

// settle finds the place of an element, from a position towards the first one or towards the last ones.
func (h Heap[E, O]) settle(e E, at int) {
	var o O
	for ; at > 0 && o.Before(e, h[(at-1)/2]); at = (at - 1) / 2 {
		h.put(h[(at-1)/2], at)
	}
	for child := 2*at + 1; child < len(h); child = 2*at + 1 {
		if child+1 < len(h) && o.Before(h[child+1], h[child]) {
			child++
		}
		if !o.Before(h[child], e) {
			break
		}
		h.put(h[child], at)
		at = child
	}
	h.put(e, at)
}

func (h Heap[E, O]) put(e E, at int) {
	var o O
	h[at] = e
	*o.Place(e) = int32(at + 1)
}
