package workerproto

// Stale says that a report changed nothing, because the attempt is no longer
// the live one: somebody else has the job, or it is over. Nothing to be done
// about it; if the execution still runs, it works for nothing.
//
//	{"op":"stale","job":42,"attempt":1,"session":"9f…"}
type Stale struct {
	Execution
}

func (*Stale) fromDispatcher() {}

func (m *Stale) appendTo(dst []byte) []byte {
	return append(m.appendFields(append(dst, `{"op":"stale"`...)), '}')
}

func (m *Stale) field(key []byte, s *scanner) {
	if !m.member(key, s) {
		s.unknown(key)
	}
}
