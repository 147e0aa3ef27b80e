package actor

import "github.com/dispatcherd/dispatcherd/slotindex"

// Slots lists all slots in the order of their ids.
func (c *Core) Slots() (list []SlotInfo) {
	for next := slotindex.Ref(0); int(next) < c.slots.Len(); {
		var part []SlotInfo
		part, next = c.SlotsFrom(next)
		list = append(list, part...)
	}
	sortSlots(list)
	return list
}
