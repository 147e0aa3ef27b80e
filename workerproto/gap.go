package workerproto

// Gap says that events of the request were dropped, because there was no room for them.
//
//	{"op":"gap","id":7,"missed":12}
type Gap struct {
	ID     int64
	Missed int
}

func (*Gap) fromDispatcher() {}

func (m *Gap) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"op":"gap","id":`...), m.ID)
	return append(appendInt(append(dst, `,"missed":`...), int64(m.Missed)), '}')
}

func (m *Gap) field(key []byte, s *scanner) {
	switch string(key) {
	case "id":
		m.ID = s.integer(1, maxInt64)
	case "missed":
		m.Missed = int(s.integer(0, maxInt64))
	default:
		s.unknown(key)
	}
}

func (m *Gap) check(s *scanner) { s.require(m.ID != 0, "id") }
