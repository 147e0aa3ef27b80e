package slotindex

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

// Check compares all redundant data (counters, heads, positions) with the
// slots and returns an error for the first difference.
func (x *Index) Check() error {
	live, freeSlots := 0, 0
	perType := make([]int, len(x.types))
	members, registered := map[*class]int{}, map[*class]int{}
	for r := range Ref(len(x.slots)) {
		s := x.slots[r]
		if s.state == gone {
			continue
		}
		live++
		registered[s.class]++
		if s.state == free {
			freeSlots++
		}
		if s.state == draining {
			continue
		}
		members[s.class]++
		if of := s.class.members; int(s.at) >= len(of) || of[s.at] != r || s.ref != r {
			return fmt.Errorf("slot %d (ref %d, says %d) is not at %d of its class: %v", s.id, r, s.ref, s.at, of)
		}
		for _, t := range s.class.types {
			perType[t]++
		}
	}
	if live != x.live || freeSlots != x.free {
		return fmt.Errorf("%d slots, %d free, but %d and %d were counted", live, freeSlots, x.live, x.free)
	}
	for _, c := range x.byTypes {
		if err := x.checkClass(c, registered[c], members[c]); err != nil {
			return fmt.Errorf("class of the types %v: %w", c.types, err)
		}
	}
	for t := range TypeID(len(x.types)) {
		if err := x.checkType(t, perType[t]); err != nil {
			return fmt.Errorf("type %d %q: %w", t, x.types[t].name, err)
		}
	}
	return nil
}

func (x *Index) checkClass(c *class, registered, members int) error {
	if int(c.slots) != registered || registered == 0 || len(c.types) == 0 {
		return fmt.Errorf("%d slots registered, %d counted, %d types", registered, c.slots, len(c.types))
	}
	if sum := setSize(c.set); sum != len(c.types) || len(c.raised) > len(c.types) {
		return fmt.Errorf("%d types in the set, %d in the list, %d raised", sum, len(c.types), len(c.raised))
	}
	head, freeFound := noHead, 0
	for _, r := range c.members {
		s := x.slots[r]
		if s.class != c || s.id < c.least || (s.state == free) != (s.place > 0) {
			return fmt.Errorf("slot %d (ref %d) of class %v, %v, has place %d; least is %d", s.id, r, c.types, s.state, s.place, c.least)
		}
		if s.state == free {
			freeFound++
			head = min(head, s.id)
		}
	}
	if len(c.members) != members || freeFound != len(c.free) || head != c.head {
		return fmt.Errorf("%d members, %d free, head %d; found %d, %d, %d", len(c.members), len(c.free), c.head, members, freeFound, head)
	}
	for i, s := range c.free {
		if int(s.place) != i+1 || (byID{}).Before(s, c.free[max(0, i-1)/2]) {
			return fmt.Errorf("slot %d is the free slot %d, and says %d, after %d", s.id, i+1, s.place, c.free[max(0, i-1)/2].id)
		}
	}
	return nil
}

func (x *Index) checkType(t TypeID, capacity int) error {
	ty := x.types[t]
	used := ty.held || len(ty.classes) > 0
	if known, ok := x.byName[ty.name]; used != (ty.name != "") || used && (!ok || known != t) {
		return fmt.Errorf("held %t, %d classes, known as %d (%v)", ty.held, len(ty.classes), known, ok)
	}
	if int(ty.capacity) != capacity {
		return fmt.Errorf("capacity %d, counted %d", capacity, ty.capacity)
	}
	for i := range ty.classes {
		m := &ty.classes[i]
		c := m.class
		if c.types[m.nth] != t || int(c.at[m.nth]) != i || int(m.size) != len(c.types) || !c.set.Has(t) {
			return fmt.Errorf("class of size %d at %d: type %d, says it is at %d", m.size, i, c.types[m.nth], c.at[m.nth])
		}
		if m.head > c.head || (m.head != c.floor) != slices.Contains(c.raised, m.nth) {
			return fmt.Errorf("class at %d: head %d; class says head %d, floor %d, raised %d", i, m.head, c.head, c.floor, c.raised)
		}
	}
	return checkBest(ty.classes)
}

// checkBest compares the best memberships of all subtrees of a tree.
func checkBest(tree []membership) error {
	for i, m := range slices.Backward(tree) {
		best, known := min(m.best, int32(len(tree)-1)), false
		for _, j := range []int{i, 2*i + 1, 2*i + 2} {
			if j >= len(tree) {
				break
			}
			candidate := int32(i)
			if j > i {
				candidate = tree[j].best
			}
			known = known || candidate == best
			if tree[candidate].before(&tree[best]) {
				return fmt.Errorf("position %d should be before position %d", candidate, best)
			}
		}
		if !known {
			return fmt.Errorf("position %d is not in the subtree of position %d", best, i)
		}
	}
	return nil
}

func setSize(set TypeSet) int {
	n := 0
	for _, w := range set {
		n += bits.OnesCount64(w.bits)
	}
	return n
}

// Add registers a free slot.
func (x *Index) Add(id dispatcherd.SlotID, types []string) Ref {
	r := x.AddTaken(id, types)
	x.Release(r)
	return r
}

// takeBest takes the slot that Peek returns.
func (x *Index) takeBest(t TypeID) (Ref, bool) {
	r, ok := x.Peek(t)
	if ok {
		x.Take(r)
	}
	return r, ok
}

// Slots returns all registered slots by SlotID, including draining ones.
func (x *Index) Slots() []Ref {
	refs := make([]Ref, 0, x.live)
	for r := range Ref(len(x.slots)) {
		if x.slots[r].state != gone {
			refs = append(refs, r)
		}
	}
	slices.SortFunc(refs, func(a, b Ref) int { return cmp.Compare(x.slots[a].id, x.slots[b].id) })
	return refs
}
