package slotindex

import "github.com/dispatcherd/dispatcherd"

// membership says that the types of a class include a type. The memberships of a
// type are a binary heap: the class with the fewest types is first, among equals
// the one with the smallest head.
//
// A slot that is taken or released may change the head of a class in the heaps of
// thousands of types. So head is only a lower bound of the head of the class, and
// a search corrects what it meets at the top of the heap. The class lists the
// corrected memberships and resets them to its floor when its head becomes
// smaller. Each correction is reset at most once, so taking and releasing a slot
// does not depend on the number of its types.
type membership struct {
	head   dispatcherd.SlotID // ≤ head of the class
	class  classID
	size   int32 // types in the set of the class
	nth    int32 // position of this type among the types of the class
	raised bool  // head is not the floor of the class, and the class lists nth in raised
}

// before reports whether a class precedes another. Classes without a free slot
// come last.
func (m *membership) before(o *membership) bool {
	switch {
	case (m.head == noHead) != (o.head == noHead):
		return o.head == noHead
	case m.size != o.size:
		return m.size < o.size
	}
	return m.head < o.head
}

// bestClass returns the class whose head Take returns, or -1.
func (x *Index) bestClass(t TypeID) classID {
	heap := x.types[t].classes
	for len(heap) > 0 && heap[0].head != noHead {
		m := &heap[0]
		c := x.classes[m.class]
		if m.head == c.head {
			return m.class
		}
		m.head = c.head
		if !m.raised {
			m.raised = true
			c.raised = append(c.raised, m.nth)
		}
		x.down(heap, 0)
	}
	return -1
}

// resetRaised resets the memberships that searches have corrected. It is necessary
// when the head of the class becomes smaller.
func (x *Index) resetRaised(c *class) {
	for _, nth := range c.raised {
		heap := x.types[c.types[nth]].classes
		at := int(c.at[nth])
		heap[at].head, heap[at].raised = c.floor, false
		x.up(heap, at)
	}
	c.raised = c.raised[:0]
}

// lowerFloor adapts a class to a slot with a smaller id than all earlier ones.
func (x *Index) lowerFloor(c *class, floor dispatcherd.SlotID) {
	c.floor = floor
	for nth, t := range c.types {
		heap, at := x.types[t].classes, int(c.at[nth])
		if m := &heap[at]; !m.raised {
			m.head = floor
			x.up(heap, at)
		}
	}
}

// join adds a class to the heap of one of its types.
func (x *Index) join(t TypeID, m membership) {
	ty := &x.types[t]
	ty.classes = append(roomy(ty.classes, int(t)), m)
	x.up(ty.classes, len(ty.classes)-1)
}

// roomy returns a heap with room for one more membership. The heaps of thousands of
// types often have the same length. The capacity depends on the type, so that they
// are not all copied for the same slot.
func roomy(heap []membership, t int) []membership {
	n := len(heap)
	if n < cap(heap) {
		return heap
	}
	grown := make([]membership, n, n+1+n/4+t%(1+n/4))
	copy(grown, heap)
	return grown
}

// leave removes a class from the heap of one of its types.
func (x *Index) leave(t TypeID, at int32) {
	ty := &x.types[t]
	last := len(ty.classes) - 1
	moved := ty.classes[last]
	ty.classes = ty.classes[:last]
	if i := int(at); i < last {
		ty.classes[i] = moved
		x.down(ty.classes, x.up(ty.classes, i))
	}
	x.forgetUnused(t)
}

// up moves a membership towards the top and returns its new position.
func (x *Index) up(heap []membership, i int) int {
	m := heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !m.before(&heap[parent]) {
			break
		}
		x.put(heap, i, heap[parent])
		i = parent
	}
	x.put(heap, i, m)
	return i
}

// down moves a membership away from the top.
func (x *Index) down(heap []membership, i int) {
	m := heap[i]
	for {
		child := 2*i + 1
		if child >= len(heap) {
			break
		}
		if r := child + 1; r < len(heap) && heap[r].before(&heap[child]) {
			child = r
		}
		if !heap[child].before(&m) {
			break
		}
		x.put(heap, i, heap[child])
		i = child
	}
	x.put(heap, i, m)
}

// put stores a membership at a position of its heap.
func (x *Index) put(heap []membership, i int, m membership) {
	heap[i] = m
	x.classes[m.class].at[m.nth] = int32(i)
	x.work++
}
