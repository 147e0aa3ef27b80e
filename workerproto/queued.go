package workerproto

// Queued is the first event of a request: its place among the waiting jobs.
//
//	{"op":"queued","id":7,"rank":2,"waiting":5}
type Queued struct {
	ID      int64
	Rank    int // place among the waiting jobs of its type; 1 goes next
	Waiting int // waiting jobs of its type that the dispatcher knows
}

func (*Queued) fromDispatcher() {}

func (m *Queued) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"op":"queued","id":`...), m.ID)
	dst = appendInt(append(dst, `,"rank":`...), int64(m.Rank))
	return append(appendInt(append(dst, `,"waiting":`...), int64(m.Waiting)), '}')
}

func (m *Queued) field(key []byte, s *scanner) {
	switch string(key) {
	case "id":
		m.ID = s.integer(1, maxInt64)
	case "rank":
		m.Rank = int(s.integer(0, maxInt64))
	case "waiting":
		m.Waiting = int(s.integer(0, maxInt64))
	default:
		s.unknown(key)
	}
}

func (m *Queued) check(s *scanner) { s.require(m.ID != 0, "id") }
