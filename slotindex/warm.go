package slotindex

// roomy is the number of slots from which on an index is larger than the caches
// near a processor.
const roomy = 2048

// Warm reads what Release will touch for each of the slots, and changes nothing.
// With very many slots each of those places is cold memory, and they lie behind
// each other: released one by one a slot waits for memory four times. Here the
// same step of all slots is read side by side, so that they wait together.
func (x *Index) Warm(refs []Ref) {
	if len(x.slots) < roomy {
		return
	}
	n := 0 // what was read must be used, or it would not be read
	for _, r := range refs {
		n += int(x.slots[r].block)
	}
	for _, r := range refs {
		s := &x.slots[r]
		c := &x.classes[s.class]
		n += int(x.blocks[s.block].rank) + int(c.free) + len(c.at)
	}
	for _, r := range refs {
		c := &x.classes[x.slots[r].class]
		if len(c.bitmap) > 0 {
			n += int(c.bitmap[0])
		}
		n += int(c.at[0]) + int(c.types[0])
	}
	for _, r := range refs {
		c := &x.classes[x.slots[r].class]
		if c.free > 0 {
			continue
		}
		for i, t := range c.types {
			n += int(x.types[t].bitmap[c.at[i]/64])
		}
	}
	x.warmth = n
}
