package workerproto

// Done ends an execution with success.
//
//	{"op":"done","job":42,"attempt":1,"session":"9f…","result":{"pages":3}}
type Done struct {
	Execution
	Result []byte // JSON; nil if there is none
}

func (*Done) fromWorker() {}

func (m *Done) appendTo(dst []byte) []byte {
	dst = m.appendFields(append(dst, `{"op":"done"`...))
	return append(appendRaw(dst, `,"result":`, m.Result), '}')
}

func (m *Done) field(key []byte, s *scanner) {
	switch {
	case string(key) == "result":
		m.Result = s.raw()
	case !m.member(key, s):
		s.unknown(key)
	}
}
