package permits

// order compares the elements of a heap. An element keeps its place in the heap: its index + 1; 0 = not in it.
type order[T any] interface {
	before(a, b T) bool
	place(v T) *int32
}

// heap is a binary heap from which any element can be removed. The order is a type, so that a heap has no
// size beside its elements.
type heap[T any, O order[T]] []T

func (h heap[T, O]) set(i int, v T) {
	var o O
	h[i] = v
	*o.place(v) = int32(i + 1)
}

// fix adds v, or restores the order after a change of v.
func (h *heap[T, O]) fix(v T) {
	var o O
	at := *o.place(v)
	if at == 0 {
		*h = append(*h, v)
		at = int32(len(*h))
	}
	items, i := *h, int(at-1)
	for i > 0 && o.before(v, items[(i-1)/2]) {
		items.set(i, items[(i-1)/2])
		i = (i - 1) / 2
	}
	for {
		least := 2*i + 1
		if least >= len(items) {
			break
		}
		if right := least + 1; right < len(items) && o.before(items[right], items[least]) {
			least = right
		}
		if !o.before(items[least], v) {
			break
		}
		items.set(i, items[least])
		i = least
	}
	items.set(i, v)
}

// remove removes v, if it is in the heap.
func (h *heap[T, O]) remove(v T) {
	var o O
	at := o.place(v)
	if *at == 0 {
		return
	}
	i, last := int(*at-1), len(*h)-1
	*at = 0
	moved := (*h)[last]
	var zero T
	(*h)[last] = zero
	*h = (*h)[:last]
	if i < last {
		(*h)[i] = moved
		*o.place(moved) = int32(i + 1)
		h.fix(moved)
	}
}

// min returns the first element.
func (h heap[T, O]) min() (v T, ok bool) {
	if len(h) == 0 {
		return v, false
	}
	return h[0], true
}

// each calls f with elements, until f returns false for all of them or has been called most times. Elements behind
// one for which f returns false are omitted: f must return false for these, too.
func (h heap[T, O]) each(most int, f func(T) bool) {
	next := []int{0}
	for len(next) > 0 && most > 0 {
		i := next[len(next)-1]
		next = next[:len(next)-1]
		if i >= len(h) {
			continue
		}
		most--
		if f(h[i]) {
			next = append(next, 2*i+1, 2*i+2)
		}
	}
}

// first returns the first elements in order, up to n.
func (h heap[T, O]) first(n int) []T {
	var o O
	var found []T
	var next []int
	if len(h) > 0 {
		next = append(next, 0)
	}
	for len(next) > 0 && len(found) < n {
		least := 0
		for i := range next {
			if o.before(h[next[i]], h[next[least]]) {
				least = i
			}
		}
		i := next[least]
		next[least] = next[len(next)-1]
		next = next[:len(next)-1]
		found = append(found, h[i])
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(h) {
				next = append(next, child)
			}
		}
	}
	return found
}
