package workerproto

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// plain marks the bytes that stand for themselves inside a JSON string.
var plain = func() (table [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

const (
	eachByte = 0x0101010101010101
	eachHigh = 0x8080808080808080
)

// special returns a word whose lowest set bit lies in the first byte of x that
// is a quote, a backslash or a control character; 0 if there is none. A byte
// above the first hit may be marked wrongly (borrow), which does not matter.
func special(x uint64) uint64 {
	quote := x ^ (eachByte * '"')
	slash := x ^ (eachByte * '\\')
	quote = (quote - eachByte) & ^quote
	slash = (slash - eachByte) & ^slash
	control := (x - eachByte*0x20) & ^x
	return (quote | slash | control) & eachHigh
}

// ordinary returns the index, from at on, of the first byte that does not stand
// for itself inside a string.
func ordinary(line []byte, at int) int {
	for len(line)-at >= 8 {
		if hit := special(binary.LittleEndian.Uint64(line[at:])); hit != 0 {
			return at + bits.TrailingZeros64(hit)>>3
		}
		at += 8
	}
	for at < len(line) && (plain[line[at]] || line[at] >= utf8.RuneSelf) {
		at++
	}
	return at
}

// quoted reads a string from its opening quote and returns what stands between
// the quotes, and whether there are escapes in it.
func (s *scanner) quoted() (text []byte, escaped bool) {
	s.at++
	start := s.at
	for {
		s.at = ordinary(s.line, s.at)
		if s.at >= len(s.line) {
			s.syntax("a string without its end")
			return nil, false
		}
		switch s.line[s.at] {
		case '"':
			text = s.line[start:s.at]
			s.at++
			return text, escaped
		case '\\':
			escaped = true
			s.escape()
		default:
			s.syntax("a control character in a string")
		}
		if s.broken {
			return nil, false
		}
	}
}

// escape skips one escape sequence. In strict mode it refuses NUL and lone
// surrogates, which jsonb and text columns refuse: one of them would spoil the
// statement that ends a whole batch of jobs.
func (s *scanner) escape() {
	if s.at+1 >= len(s.line) {
		s.syntax("a malformed escape")
		return
	}
	switch s.line[s.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return
	case 'u':
	default:
		s.syntax("a malformed escape")
		return
	}
	r, ok := hex4(s.line[s.at:])
	if !ok {
		s.syntax("a malformed escape")
		return
	}
	s.at += 6
	if !s.strict {
		return
	}
	if r == 0 {
		s.bad("\\u0000 in a payload cannot be kept")
	}
	if utf16.IsSurrogate(r) {
		low, ok := hex4(s.line[s.at:])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			s.bad("half a surrogate pair in a payload cannot be kept")
			return
		}
		s.at += 6
	}
}

// hex4 decodes \uXXXX at the beginning of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// unescape decodes the escapes of a string that quoted has checked. Lone
// surrogates and NUL become U+FFFD: no text that leaves this package holds
// what a text column refuses.
func unescape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if text[i] != '\\' {
			out = append(out, text[i])
			i++
			continue
		}
		switch c := text[i+1]; c {
		case 'u':
			r, _ := hex4(text[i:])
			i += 6
			if utf16.IsSurrogate(r) {
				low, ok := hex4(text[i:])
				if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
					i += 6
				} else {
					r = utf8.RuneError
				}
			}
			if r == 0 {
				r = utf8.RuneError
			}
			out = utf8.AppendRune(out, r)
			continue
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		default:
			out = append(out, c)
		}
		i += 2
	}
	return out
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
		return unescape(text)
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
