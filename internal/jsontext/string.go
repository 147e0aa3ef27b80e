package jsontext

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Plain reports whether c is ASCII and stands for itself inside a string.
func Plain(c byte) bool { return c < utf8.RuneSelf && ordinary[c] }

// ordinary contains the bytes that stand for themselves inside a string.
var ordinary = func() (table [256]bool) {
	for c := 0x20; c < len(table); c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// String reads a string that begins at the current byte, and returns it without
// quotes and escapes. The bytes are valid as long as the text is. Half surrogate
// pairs and NUL become U+FFFD.
func (s *Scanner) String() []byte {
	return unescape(s.rawString())
}

// rawString is String without unescaping.
func (s *Scanner) rawString() (text []byte, escaped bool) {
	start := s.at + 1
	escaped = s.quoted()
	if s.fault.Malformed {
		return nil, false
	}
	return s.text[start : s.at-1], escaped
}

// quoted reads a string from its opening quote, and reports whether it contains
// an escape.
func (s *Scanner) quoted() (escaped bool) {
	s.at++
	for {
		text, at := s.text, s.at
		for at < len(text) && ordinary[text[at]] {
			at++
		}
		s.at = at
		if at == len(text) {
			s.Fail("a string without its end")
			return escaped
		}
		switch text[at] {
		case '"':
			s.at++
			return escaped
		case '\\':
			escaped = true
			s.escape()
		default:
			s.Fail("a control character in a string")
		}
		if s.fault.Malformed {
			return escaped
		}
	}
}

// escape reads one escape sequence. Postgres rejects a statement with NUL or
// half a surrogate pair. One such value would block the finish of a whole
// batch of jobs.
func (s *Scanner) escape() {
	text := s.text[s.at:]
	if len(text) > 1 && strings.IndexByte(`"\/bfnrt`, text[1]) >= 0 {
		s.at += 2
		return
	}
	r, ok := hex4(text)
	if !ok {
		s.Fail(malformedEscape)
		return
	}
	s.at += 6
	switch {
	case s.rules == anyJSON:
	case r == 0:
		s.reject(nullCharacter)
	case utf16.IsSurrogate(r):
		if low, ok := hex4(s.text[s.at:]); !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			s.reject(halfSurrogate)
			return
		}
		s.at += 6
	}
}

const malformedEscape = "a malformed escape"

// hex4 decodes \uXXXX at the beginning of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	r, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(r), err == nil
}

// unescape decodes a valid string, given without its quotes. It returns the text itself if it has no escape.
func unescape(text []byte, escaped bool) []byte {
	if !escaped {
		return text
	}
	var decoded string
	_ = json.Unmarshal(slices.Concat([]byte{'"'}, text, []byte{'"'}), &decoded) // the grammar was checked
	return bytes.ReplaceAll([]byte(decoded), []byte{0}, []byte("\ufffd"))
}
