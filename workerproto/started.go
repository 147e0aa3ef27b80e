package workerproto

import "github.com/dispatcherd/dispatcherd"

// Started says that a worker runs the request. It may come again after a crash.
//
//	{"op":"started","id":7,"slot":3,"worker":"w1"}
type Started struct {
	ID     int64
	Slot   dispatcherd.SlotID
	Worker string
}

func (*Started) fromDispatcher() {}

func (m *Started) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"op":"started","id":`...), m.ID)
	dst = appendInt(append(dst, `,"slot":`...), int64(m.Slot))
	return append(appendText(dst, `,"worker":`, m.Worker), '}')
}

func (m *Started) field(key []byte, s *scanner) {
	switch string(key) {
	case "id":
		m.ID = s.integer(1, maxInt64)
	case "slot":
		m.Slot = dispatcherd.SlotID(s.integer(0, maxInt64))
	case "worker":
		m.Worker = s.text(MaxMessageLength)
	default:
		s.unknown(key)
	}
}

func (m *Started) check(s *scanner) { s.require(m.ID != 0, "id") }
