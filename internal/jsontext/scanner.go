package jsontext

import (
	"bytes"
	"strconv"
)

// Fault is what is wrong with a value. The zero value means that nothing is
// wrong.
type Fault struct {
	What      string // for people; contains no part of the text
	Malformed bool   // the text is not JSON, or nested too deep; otherwise Postgres or a worker rejects it
}

// TooDeep reports whether the text is nested too deep.
func (f Fault) TooDeep() bool { return f.What == tooDeep }

// Scanner reads JSON text from beginning to end. It stops at the first malformed
// byte. Then its position does not change, and all methods return zero values.
// Other faults do not stop it. It keeps the first fault.
type Scanner struct {
	text  []byte
	at    int
	grown int // by how many bytes jsonb lengthens the numbers before at, at most
	fault Fault
	rules rules
}

// rules say what values must satisfy besides the grammar.
type rules uint8

const (
	anyJSON  rules = iota
	storable       // Postgres stores it in a column of type json, jsonb or text
	sendable       // storable, and the text that jsonb makes of it can be sent in a frame
)

// NewScanner returns a Scanner at the beginning of text.
func NewScanner(text []byte) Scanner { return Scanner{text: text} }

// Offset returns the position of the next byte.
func (s *Scanner) Offset() int { return s.at }

// Fault returns what is wrong so far.
func (s *Scanner) Fault() Fault { return s.fault }

// Malformed reports whether the scanner has stopped at a malformed byte.
func (s *Scanner) Malformed() bool { return s.fault.Malformed }

// Fail stops the scanner at the current byte.
func (s *Scanner) Fail(what string) {
	if !s.fault.Malformed {
		s.fault = Fault{what, true}
	}
}

// reject records a value that is JSON but violates the rules.
func (s *Scanner) reject(what string) {
	if s.fault.What == "" {
		s.fault.What = what
	}
}

// Peek skips white space and returns the next byte, 0 at the end.
func (s *Scanner) Peek() byte {
	if s.fault.Malformed {
		return 0
	}
	for ; s.at < len(s.text); s.at++ {
		if c := s.text[s.at]; c > ' ' || c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// Skip reads one value of any type and checks its grammar.
func (s *Scanner) Skip() { s.value(0) }

// Payload reads a value like Skip and returns its text, or nil if it is malformed. It also checks that Postgres can store
// the value as json, jsonb or text: no \u0000, no half surrogate pair, no huge number.
func (s *Scanner) Payload() (text []byte) {
	s.Peek()
	start := s.at
	s.rules = storable
	s.value(0)
	s.rules = anyJSON
	if !s.fault.Malformed {
		text = s.text[start:s.at]
	}
	return text
}

// Begin reports whether the next value begins with the bracket open and is not
// empty. It reads the bracket. Of an empty value it also reads the closing
// bracket. After each member or element, More reports whether another follows.
func (s *Scanner) Begin(open byte) bool {
	if s.Peek() != open {
		return false
	}
	s.at++
	if s.Peek() == open+2 { // ']' is '[' + 2, '}' is '{' + 2
		s.at++
		return false
	}
	return !s.fault.Malformed
}

// More reads a comma and reports true, or reads the closing bracket end and
// reports false.
func (s *Scanner) More(end byte) bool {
	switch c := s.Peek(); {
	case s.fault.Malformed:
	case c == ',':
		s.at++
		return true
	case c == end:
		s.at++
	default:
		s.Fail("a comma or the end is missing")
	}
	return false
}

// Name reads a member's name and the colon. The bytes are valid as long as the
// text is.
func (s *Scanner) Name() []byte {
	return unescape(s.rawName())
}

// rawName is Name without unescaping.
func (s *Scanner) rawName() (name []byte, escaped bool) {
	if s.Peek() != '"' {
		s.Fail("a member's name is missing")
		return nil, false
	}
	name, escaped = s.rawString()
	if s.Peek() != ':' {
		s.Fail("a colon is missing")
		return nil, false
	}
	s.at++
	return name, escaped
}

// End fails unless only white space follows.
func (s *Scanner) End() {
	if s.Peek() != 0 || s.at < len(s.text) {
		s.Fail("something after the end")
	}
}

// value reads the next value.
func (s *Scanner) value(depth int) {
	switch c := s.Peek(); c {
	case '"':
		s.quoted()
	case '{', '[':
		if depth >= MaxDepth {
			s.Fail(tooDeep)
			return
		}
		s.nested(c, depth)
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		if c != '-' && !isDigit(c) {
			s.Fail("a value is missing")
			return
		}
		s.number()
	}
}

// nested reads an object or array.
func (s *Scanner) nested(open byte, depth int) {
	for more := s.Begin(open); more; more = s.More(open + 2) {
		if open == '{' {
			s.rawName()
		}
		s.value(depth + 1)
	}
}

func (s *Scanner) literal(word string) {
	if !bytes.HasPrefix(s.text[s.at:], []byte(word)) {
		s.Fail("a malformed word")
		return
	}
	s.at += len(word)
}

// number reads a number and checks its length.
func (s *Scanner) number() {
	start := s.at
	s.accept('-')
	first := s.at
	if s.digits() > 1 && s.text[first] == '0' {
		s.Fail(malformedNumber)
	}
	if s.accept('.') {
		s.digits()
	}
	exponent := int64(0)
	if s.accept('e') || s.accept('E') {
		if !s.accept('+') {
			s.accept('-')
		}
		from := s.at
		s.digits()
		exponent, _ = strconv.ParseInt(string(s.text[from:s.at]), 10, 32) // out of range: the largest
	}
	length, power := s.at-start, int(exponent)
	s.grown += power
	if s.rules != anyJSON && (length > MaxNumber || power > 9999) || s.rules == sendable && length+power > MaxNumber {
		s.reject(longNumber)
	}
}

const malformedNumber = "a malformed number"

// Integer reads a number that begins at the current byte. The error is strconv.ErrSyntax if it has a fraction or an exponent, and
// strconv.ErrRange if n cannot contain it.
func (s *Scanner) Integer() (n int64, err error) {
	start := s.at
	s.number()
	if s.fault.Malformed {
		return 0, nil
	}
	return strconv.ParseInt(string(s.text[start:s.at]), 10, 64)
}

// accept reads the next byte if it is c, and reports whether it is.
func (s *Scanner) accept(c byte) bool {
	if s.fault.Malformed || s.at == len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

// digits reads one digit or more and returns how many; 0 is malformed.
func (s *Scanner) digits() int {
	start := s.at
	for s.at < len(s.text) && isDigit(s.text[s.at]) {
		s.at++
	}
	if s.at == start {
		s.Fail(malformedNumber)
	}
	return s.at - start
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
