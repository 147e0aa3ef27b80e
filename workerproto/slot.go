package workerproto

import "sort"

// Slot is one slot of a worker. The worker chooses its number, which is unique in
// the session. It supports at least one type and has no duplicates; the types are
// sorted after decoding. On the wire
// {"slot":0,"types":["excel","pdf"]}.
type Slot struct {
	Number int32
	Types  []string
}

func (sl *Slot) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"slot":`...), int64(sl.Number))
	return append(appendStrings(append(dst, `,"types":`...), sl.Types), '}')
}

func (sl *Slot) member(key []byte, s *scanner) bool {
	switch string(key) {
	case "slot":
		sl.Number = int32(s.integer(0, maxInt32))
		s.seenSlot = true
	case "types":
		sl.Types = s.symbols()
		sort.Strings(sl.Types)
	default:
		return false
	}
	return true
}

func (sl *Slot) field(key []byte, s *scanner) {
	if !sl.member(key, s) {
		s.Skip()
	}
}

func (sl *Slot) check(s *scanner) {
	s.require(s.seenSlot, "slot")
}

func appendSlots(dst []byte, slots []Slot) []byte {
	dst = append(dst, '[')
	for i := range slots {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = slots[i].appendTo(dst)
	}
	return append(dst, ']')
}

// slotList decodes an array of slots.
func slotList(s *scanner) []Slot {
	var slots []Slot
	for more := s.array(); more; more = s.More(']') {
		var sl Slot
		s.seenSlot = false
		s.object(&sl)
		sl.check(s)
		slots = append(slots, sl)
	}
	return slots
}
