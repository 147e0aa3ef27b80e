package shell

import "github.com/dispatcherd/dispatcherd/actor/event"

// Portion is the number of types, added up over the slots, that one event
// registers at most. It bounds the time for which a registration keeps the loop
// from other events to about a millisecond. A slot with more types would be an
// event of its own.
const Portion = 8192

// Register passes the slots and the resume offers of an event to register, in events
// of at most most types. All offers come before all slots.
func Register(register func(event.Registered), ev event.Registered, most int) {
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

// portion returns how many of the first n elements have at most most types, at least
// one element.
func portion(n, most int, types func(int) int) int {
	total := 0
	for i := range n {
		if total += types(i); total > most {
			return max(1, i)
		}
	}
	return n
}
