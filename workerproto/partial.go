package workerproto

// Partial is a piece of the output, for a waiting caller. Pieces are forwarded in
// order and not stored.
//
//	{"op":"partial","job":-7,"attempt":1,"session":"9f…","data":{"line":"hello"}}
type Partial struct {
	Execution
	Data []byte // JSON
}

func (*Partial) fromWorker() {}

func (m *Partial) appendTo(dst []byte) []byte {
	dst = m.appendFields(append(dst, `{"op":"partial"`...))
	return append(appendRaw(dst, `,"data":`, m.Data), '}')
}

func (m *Partial) field(key []byte, s *scanner) {
	switch {
	case string(key) == "data":
		m.Data = s.raw()
	case !m.member(key, s):
		s.unknown(key)
	}
}

func (m *Partial) check(s *scanner) {
	m.Execution.check(s)
	s.require(m.Data != nil, "data")
}
