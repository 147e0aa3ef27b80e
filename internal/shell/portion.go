package shell

import "github.com/dispatcherd/dispatcherd/actor/event"

// Portion is the size of the largest event that registers slots or cancels jobs. It
// bounds the time for which such an event keeps the loop from other events. The size of a slot is
// the number of its types plus slotSize. A slot that is larger than a portion is an
// event of its own.
const Portion = 4096

// ReportPortion is the most results or reports of one event.
const ReportPortion = 1024

// slotSize is the cost of a slot beside that of its types, relative to the cost of
// a type.
const slotSize = 10

// Register passes the slots and the resume offers of an event to register, in events
// of at most the size most. All offers come before all slots.
func Register(register func(event.Event), ev event.Registered, most int) {
	slots := ev.Slots
	ev.Slots = nil
	for offers := ev.Offers; len(offers) > 0; {
		n := portion(len(offers), most, func(i int) int { return len(offers[i].Slot.Types) })
		ev.Offers, offers = offers[:n], offers[n:]
		ev.MoreOffers = len(offers) > 0
		register(ev)
		if len(offers) == 0 && len(slots) == 0 {
			return
		}
	}
	for ev.Offers = nil; ; {
		n := portion(len(slots), most, func(i int) int { return len(slots[i].Types) })
		ev.Slots, slots = slots[:n], slots[n:]
		register(ev)
		if len(slots) == 0 {
			return
		}
	}
}

// portion returns how many of the n slots fit into a portion, at least one.
func portion(n, most int, types func(int) int) int {
	total := 0
	for i := range n {
		if total += slotSize + types(i); total > most {
			return max(1, i)
		}
	}
	return n
}
