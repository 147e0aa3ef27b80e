package workerproto

// SlotRemove removes slots: they get no more jobs, and a busy one ends its job
// first. It removes all of them, or none if one is unknown. A job that was sent
// before the frame was read may still arrive; the worker runs it or gives it back
// with a release.
//
//	{"op":"slot_remove","slots":[1]}
type SlotRemove struct {
	Slots []int32
}

func (*SlotRemove) fromWorker() {}

func (m *SlotRemove) appendTo(dst []byte) []byte {
	dst = append(dst, `{"op":"slot_remove","slots":[`...)
	for i, n := range m.Slots {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendInt(dst, int64(n))
	}
	return append(dst, `]}`...)
}

func (m *SlotRemove) field(key []byte, s *scanner) {
	if string(key) != "slots" {
		s.unknown(key)
		return
	}
	m.Slots = nil
	for more := s.array(); more; more = s.More(']') {
		m.Slots = append(m.Slots, int32(s.integer(0, maxInt32)))
	}
}

func (m *SlotRemove) check(s *scanner) { s.require(len(m.Slots) > 0, "slots") }
