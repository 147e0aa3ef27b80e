package permits

// heap is a binary heap whose elements know their places, so any of them can be removed.
type heap[T any] struct {
	items  []T
	before func(a, b T) bool
	place  func(T) *int // where an element keeps its index + 1; 0 = not in the heap
}

func (h *heap[T]) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.place(h.items[i]), *h.place(h.items[j]) = i+1, j+1
}

// fix adds v, or restores the order after a change of v.
func (h *heap[T]) fix(v T) {
	at := h.place(v)
	if *at == 0 {
		h.items = append(h.items, v)
		*at = len(h.items)
	}
	i := *at - 1
	for i > 0 && h.before(h.items[i], h.items[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(h.items) && h.before(h.items[child], h.items[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

// remove removes v, if it is in the heap.
func (h *heap[T]) remove(v T) {
	at := h.place(v)
	if *at == 0 {
		return
	}
	i, last := *at-1, len(h.items)-1
	h.swap(i, last)
	*at = 0
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	if i < last {
		h.fix(h.items[i])
	}
}

// min returns the first element.
func (h *heap[T]) min() (v T, ok bool) {
	if len(h.items) == 0 {
		return v, false
	}
	return h.items[0], true
}
