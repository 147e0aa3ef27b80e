package workerproto

import "github.com/dispatcherd/dispatcherd/internal/grammar"

// quoted reads a string from its opening quote and returns what stands between
// the quotes, and whether there are escapes in it.
func (s *scanner) quoted() (text []byte, escaped bool) {
	start := s.at + 1
	end, escaped, fault := grammar.String(s.line, s.at)
	s.at = end
	if fault.Malformed {
		s.syntax(fault.What)
		return nil, false
	}
	return s.line[start : end-1], escaped
}

// bytes reads a string value; the result is valid as long as the line.
func (s *scanner) bytes() []byte {
	if s.peek() != '"' {
		if !s.null() {
			s.mismatch("a string")
		}
		return nil
	}
	text, escaped := s.quoted()
	if escaped && !s.broken {
		return grammar.Unescape(text)
	}
	return text
}

// text reads a string for people and cuts it to limit bytes.
func (s *scanner) text(limit int) string {
	b := s.bytes()
	if len(b) <= limit {
		return string(b)
	}
	return truncate(string(b[:limit+1]), limit)
}

// symbol reads a string that repeats from frame to frame: a nonce, a type, a
// level. One that is longer than limit is refused.
func (s *scanner) symbol(limit int) string {
	b := s.bytes()
	if len(b) > limit {
		s.bad("field \"" + truncate(string(s.name), maxSymbol) + "\" is too long")
		return ""
	}
	return s.names.intern(b)
}

// symbols reads an array of strings.
func (s *scanner) symbols() []string {
	var list []string
	for more := s.array(); more; more = s.more(']') {
		list = append(list, s.symbol(maxFrameCeiling))
	}
	return list
}
