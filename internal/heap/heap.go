// Package heap is a binary heap of elements that know their places, so that any of them
// can be removed.
package heap

// Element is a pointer to an element of a heap.
type Element[E any] interface {
	// Before reports whether the element must come out of the heap before another one.
	Before(other E) bool
	// Place is the position in the heap, counted from 1; 0 = in no heap. Only the heap changes it.
	Place() *int32
}

// Heap contains elements; the first one precedes all others. The children of position i are
// at 2i+1 and 2i+2. The zero value is empty and ready.
type Heap[E Element[E]] []E

// Push adds an element that is in no heap.
func (h *Heap[E]) Push(e E) {
	*h = append(*h, e)
	h.up(e, len(*h)-1)
}

// Remove removes an element.
func (h *Heap[E]) Remove(e E) {
	at, last := int(*e.Place())-1, len(*h)-1
	moved := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	if *e.Place() = 0; at < last {
		h.up(moved, h.down(moved, at))
	}
}

// up finds the place of an element, from a position towards the first one.
func (h Heap[E]) up(e E, at int) {
	for ; at > 0 && e.Before(h[(at-1)/2]); at = (at - 1) / 2 {
		h.put(h[(at-1)/2], at)
	}
	h.put(e, at)
}

// down moves up the elements below a position that precede an element, and returns the position that is left for it.
func (h Heap[E]) down(e E, at int) int {
	for {
		child := 2*at + 1
		if child+1 < len(h) && h[child+1].Before(h[child]) {
			child++
		}
		if child >= len(h) || !h[child].Before(e) {
			return at
		}
		h.put(h[child], at)
		at = child
	}
}

func (h Heap[E]) put(e E, at int) {
	h[at] = e
	*e.Place() = int32(at + 1)
}
