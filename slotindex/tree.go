package slotindex

import "github.com/dispatcherd/dispatcherd"

// membership says that the types of a class include a type. The memberships of a
// type are a binary tree: the children of position i are at 2i+1 and 2i+2. Each
// membership knows the best one of its subtree: the class with the fewest types,
// among equals the one with the smallest head. So a change of a head updates the
// path to the root and moves no membership.
//
// A slot that is taken or released may change the head of a class in the trees of
// thousands of types. So head is only a lower bound of the head of the class, and
// a search corrects what it meets as the best. The class lists the corrected
// memberships and resets them to its floor when its head becomes smaller. Each
// correction pays for at most two resets, so taking and releasing a slot does not
// depend on the number of its types.
type membership struct {
	head  dispatcherd.SlotID // ≤ head of the class. If it is not the floor of the class, the class lists nth in raised
	class *class
	size  int32 // types in the set of the class
	nth   int32 // position of this type among the types of the class
	best  int32 // position of the best membership of the subtree
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

// bestClass returns the class whose head Peek returns, or nil.
func (x *Index) bestClass(t TypeID) *class {
	tree := x.types[t].classes
	for len(tree) > 0 {
		at := int(tree[0].best)
		m := &tree[at]
		if m.head == noHead {
			return nil
		}
		c := m.class
		if m.head == c.head {
			return m.class
		}
		if m.head == c.floor {
			c.raised = append(c.raised, m.nth)
		}
		m.head = c.head
		x.repair(tree, at)
	}
	return nil
}

// reset makes the heads in the trees lower bounds again after the head of the class has
// become smaller. The new floor is the new head if searches have corrected all
// memberships. If it is below the floor otherwise, the new floor is the smallest id that
// the class has had, so that the floor falls only once before searches correct all memberships.
func (x *Index) reset(c *class) {
	switch {
	case len(c.raised) == len(c.types):
		c.floor = c.head
	case c.head < c.floor:
		c.floor = c.least
		c.raised = c.raised[:0]
		for nth := range c.types {
			c.raised = append(c.raised, int32(nth))
		}
	}
	for _, nth := range c.raised {
		tree, at := x.types[c.types[nth]].classes, int(c.at[nth])
		tree[at].head = c.floor
		x.repair(tree, at)
	}
	c.raised = c.raised[:0]
}

// join adds a class to the tree of one of its types.
func (x *Index) join(t TypeID, m membership) {
	ty := x.types[t]
	at := len(ty.classes)
	m.class.at[m.nth] = int32(at)
	ty.classes = append(roomy(ty.classes, int(t)), m)
	x.repair(ty.classes, at)
}

// roomy returns a tree with room for one more membership. The trees of thousands of
// types often have the same length. The capacity depends on the type, so that they
// are not all copied for the same slot.
func roomy(tree []membership, t int) []membership {
	n := len(tree)
	if n < cap(tree) {
		return tree
	}
	grown := make([]membership, n, n+1+n/4+t%(1+n/4))
	copy(grown, tree)
	return grown
}

// leave removes a class from the tree of one of its types. The last membership takes
// its place.
func (x *Index) leave(t TypeID, at int32) {
	ty := x.types[t]
	last := len(ty.classes) - 1
	moved := ty.classes[last]
	ty.classes = ty.classes[:last]
	if last > 0 {
		x.repair(ty.classes, (last-1)/2)
	}
	if int(at) < last {
		moved.class.at[moved.nth] = at
		ty.classes[at] = moved
		x.repair(ty.classes, int(at))
	}
	x.forgetUnused(t)
}

// repair updates the best memberships of the subtrees that contain a changed one.
func (x *Index) repair(tree []membership, changed int) {
	for at := changed; ; at = (at - 1) / 2 {
		x.work++
		best := int32(at)
		for child := 2*at + 1; child <= 2*at+2 && child < len(tree); child++ {
			if b := tree[child].best; tree[b].before(&tree[best]) {
				best = b
			}
		}
		same := tree[at].best == best && int(best) != changed
		tree[at].best = best
		if at == 0 || same {
			return
		}
	}
}
