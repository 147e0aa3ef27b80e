package workerproto

// Progress reports how much of an execution is done, in units of the worker's
// choice.
//
//	{"op":"progress","job":42,"attempt":1,"session":"9f…","done":3,"total":10,"message":"page 3"}
type Progress struct {
	Execution
	Done, Total int64  // ≥ 0; Total 0 = unknown
	Message     string // cut to MaxMessageLength bytes
}

func (*Progress) fromWorker() {}

func (m *Progress) appendTo(dst []byte) []byte {
	dst = m.appendFields(append(dst, `{"op":"progress"`...))
	dst = appendInt(append(dst, `,"done":`...), m.Done)
	dst = appendInt(append(dst, `,"total":`...), m.Total)
	return append(appendText(dst, `,"message":`, m.Message), '}')
}

func (m *Progress) field(key []byte, s *scanner) {
	switch string(key) {
	case "done":
		m.Done = s.integer(0, maxInt64)
	case "total":
		m.Total = s.integer(0, maxInt64)
	case "message":
		m.Message = s.text(MaxMessageLength)
	default:
		if !m.member(key, s) {
			s.unknown(key)
		}
	}
}
