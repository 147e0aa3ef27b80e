package workerproto

// SlotAdd registers slots during a session: all of them, or none if one is
// rejected.
//
//	{"op":"slot_add","slots":[{"slot":1,"types":["excel","pdf"]}]}
type SlotAdd struct {
	Slots []Slot
}

func (*SlotAdd) fromWorker() {}

func (m *SlotAdd) appendTo(dst []byte) []byte {
	return append(appendSlots(append(dst, `{"op":"slot_add","slots":`...), m.Slots), '}')
}

func (m *SlotAdd) field(key []byte, s *scanner) {
	if string(key) == "slots" {
		m.Slots = slotList(s)
		return
	}
	s.unknown(key)
}

func (m *SlotAdd) check(s *scanner) { s.require(len(m.Slots) > 0, "slots") }
