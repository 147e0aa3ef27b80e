package workerproto

// CallerHello opens a session of a caller. It comes first and once.
//
//	{"op":"hello","versions":[1,1],"caller":"web-1"}
type CallerHello struct {
	MinVersion, MaxVersion int
	Caller                 string // at most dispatcherd.MaxWorkerLength bytes, for people; may be empty
}

func (*CallerHello) fromCaller() {}

func (m *CallerHello) appendTo(dst []byte) []byte {
	dst = appendInt(append(dst, `{"op":"hello","versions":[`...), int64(m.MinVersion))
	dst = append(appendInt(append(dst, ','), int64(m.MaxVersion)), ']')
	return append(appendText(dst, `,"caller":`, m.Caller), '}')
}

func (m *CallerHello) field(key []byte, s *scanner) {
	switch string(key) {
	case "versions":
		var h Hello
		h.versions(s)
		m.MinVersion, m.MaxVersion = h.MinVersion, h.MaxVersion
	case "caller":
		m.Caller = s.text(unbounded)
	default:
		s.unknown(key)
	}
}

func (m *CallerHello) check(s *scanner) { s.require(m.MinVersion > 0, "versions") }
