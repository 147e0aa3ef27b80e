package workerproto

// value skips one value of any kind and checks its grammar.
func (s *scanner) value(depth int) {
	c := s.peek()
	if depth >= maxDepth && (c == '{' || c == '[') {
		s.syntax("nested too deep")
		return
	}
	switch c {
	case '"':
		s.quoted()
	case '{':
		s.members(depth)
	case '[':
		s.elements(depth)
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		if c != '-' && !isDigit(c) {
			s.syntax("a value is missing")
			return
		}
		s.number()
	}
}

func (s *scanner) members(depth int) {
	s.at++
	if s.peek() == '}' {
		s.at++
		return
	}
	for !s.broken {
		if s.peek() != '"' {
			s.syntax("a member's name is missing")
			return
		}
		s.quoted()
		if s.peek() != ':' {
			s.syntax("a colon is missing")
			return
		}
		s.at++
		s.value(depth + 1)
		if !s.more('}') {
			return
		}
	}
}

func (s *scanner) elements(depth int) {
	s.at++
	if s.peek() == ']' {
		s.at++
		return
	}
	for !s.broken {
		s.value(depth + 1)
		if !s.more(']') {
			return
		}
	}
}

func (s *scanner) literal(word string) {
	if len(s.line)-s.at < len(word) || string(s.line[s.at:s.at+len(word)]) != word {
		s.syntax("a malformed word")
		return
	}
	s.at += len(word)
}

// number skips a number. In strict mode it refuses what no database column and
// no float64 holds: more than maxNumber bytes or an exponent of five digits.
func (s *scanner) number() {
	start := s.at
	if s.line[s.at] == '-' {
		s.at++
	}
	if first := s.at; s.run() > 1 && s.line[first] == '0' {
		s.syntax("a malformed number")
		return
	}
	if s.at < len(s.line) && s.line[s.at] == '.' {
		s.at++
		s.run()
	}
	exponent := 0
	if s.at < len(s.line) && s.line[s.at]|0x20 == 'e' {
		s.at++
		if s.at < len(s.line) && (s.line[s.at] == '+' || s.line[s.at] == '-') {
			s.at++
		}
		exponent = s.run()
	}
	if s.strict && (s.at-start > maxNumber || exponent > 4) {
		s.bad("a number in a payload is too large to be kept")
	}
}

// run skips one digit or more and returns how many.
func (s *scanner) run() int {
	start := s.at
	for s.at < len(s.line) && isDigit(s.line[s.at]) {
		s.at++
	}
	if s.at == start {
		s.syntax("a malformed number")
	}
	return s.at - start
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
