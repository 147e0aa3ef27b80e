package workerproto

// CancelRequest cancels an open request of this session. The request is still
// answered, with the code job-cancelled unless another answer was sent before. A
// CancelRequest for an id that is not open has no effect.
//
//	{"op":"cancel","id":7}
type CancelRequest struct{ ID int64 }

func (*CancelRequest) fromCaller() {}

func (m *CancelRequest) appendTo(dst []byte) []byte {
	return append(appendInt(append(dst, `{"op":"cancel","id":`...), m.ID), '}')
}

func (m *CancelRequest) field(key []byte, s *scanner) {
	if string(key) == "id" {
		m.ID = s.integer(1, maxInt64)
		return
	}
	s.unknown(key)
}

func (m *CancelRequest) check(s *scanner) { s.require(m.ID != 0, "id") }
