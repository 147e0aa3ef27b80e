package workerproto

import (
	"math"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/carry"
	"github.com/dispatcherd/dispatcherd/internal/grammar"
)

const (
	maxInt32 = math.MaxInt32
	minInt64 = math.MinInt64
	maxInt64 = math.MaxInt64

	maxDepth  = carry.MaxDepth       // nesting of arrays and objects inside a frame; grammar keeps it
	maxDelay  = 366 * 24 * time.Hour // of any duration on the wire
	maxNumber = carry.MaxNumber      // bytes of a number in a payload
	maxNonce  = 64                   // bytes of a session nonce
	maxSymbol = 32                   // bytes of a code, level or mode

	// maxFrameCeiling bounds what is bounded elsewhere with a better message.
	maxFrameCeiling = math.MaxInt32
)

// MaxMessageLength is the number of bytes kept of a message, reason or other
// text for people; what is longer is cut.
const MaxMessageLength = 8 << 10

// scanner reads one frame from front to back. Its first fault sticks. After a
// fault of syntax it is broken and delivers zero values; after a fault of
// value it reads on, so that the job the frame is about becomes known.
type scanner struct {
	line   []byte
	at     int
	fault  *Error
	broken bool

	name     []byte // key of the member being read, for messages
	ops      int    // members called "op" seen at the top
	seenSlot bool   // a slot number was given (0 is a number)
	names    *names
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.line) {
		switch c := s.line[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) syntax(what string) {
	if s.broken {
		return
	}
	s.broken = true
	s.fault = Complain(BadJSON, 0, "%s at byte %d; a frame is one JSON object on one line", what, s.at)
	s.at = len(s.line)
}

// bad records a fault of value; a fault of syntax that follows replaces it.
func (s *scanner) bad(message string) {
	if s.fault == nil {
		s.fault = Complain(BadValue, 0, "%s", message)
	}
}

// mismatch skips a value that is not what the field wants.
func (s *scanner) mismatch(want string) {
	s.bad("field " + strconv.Quote(truncate(string(s.name), maxSymbol)) + " must be " + want)
	s.skip()
}

func (s *scanner) require(ok bool, field string) {
	if !ok {
		s.bad("field \"" + field + "\" is missing or zero")
	}
}

// unknown skips a member that the frame does not know, and counts the one that
// named the frame.
func (s *scanner) unknown(key []byte) {
	if string(key) == "op" {
		s.ops++
	}
	s.skip()
}

// skip reads one value of any kind and checks its grammar.
func (s *scanner) skip() { s.pass(grammar.Value(s.line, s.at)) }

// pass goes on behind a value.
func (s *scanner) pass(end int, fault grammar.Fault) {
	s.at = end
	switch {
	case fault.Malformed:
		s.syntax(fault.What)
	case fault.What != "":
		s.bad(fault.What)
	}
}

// object gives every member of an object to m.
func (s *scanner) object(m interface{ field([]byte, *scanner) }) {
	if s.null() {
		return
	}
	if s.peek() != '{' {
		s.mismatch("an object")
		return
	}
	s.at++
	if s.peek() == '}' {
		s.at++
		return
	}
	for !s.broken {
		key := s.key()
		s.name = key
		if s.broken {
			return
		}
		m.field(key, s)
		if !s.more('}') {
			return
		}
	}
}

// more reports whether another member or element follows.
func (s *scanner) more(end byte) bool {
	switch s.peek() {
	case ',':
		s.at++
		return true
	case end:
		s.at++
	default:
		s.syntax("a comma or the end is missing")
	}
	return false
}

// key reads a member's name and the colon. The bytes are valid until the
// frame's line is.
func (s *scanner) key() []byte {
	if s.peek() != '"' {
		s.syntax("a member's name is missing")
		return nil
	}
	text, escaped := s.quoted()
	if s.peek() != ':' {
		s.syntax("a colon is missing")
		return nil
	}
	s.at++
	if escaped {
		return grammar.Unescape(text)
	}
	return text
}

// array reports whether an array with at least one element begins here; after
// each element s.more(']') says whether another follows.
func (s *scanner) array() bool {
	if s.peek() != '[' {
		if !s.null() {
			s.mismatch("an array")
		}
		return false
	}
	s.at++
	if s.peek() == ']' {
		s.at++
		return false
	}
	return true
}

// null skips a null, which counts as an absent member.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.skip()
	return true
}

func (s *scanner) boolean(absent bool) bool {
	switch s.peek() {
	case 't':
		s.skip()
		return true
	case 'f':
		s.skip()
		return false
	}
	if !s.null() {
		s.mismatch("true or false")
	}
	return absent
}

// integer reads a whole number without fraction and exponent.
func (s *scanner) integer(low, high int64) int64 {
	c := s.peek()
	if c != '-' && (c < '0' || c > '9') {
		if !s.null() {
			s.mismatch("a whole number")
		}
		return 0
	}
	start := s.at
	n, ok := s.digits()
	if s.at < len(s.line) {
		switch s.line[s.at] {
		case '.', 'e', 'E':
			s.at = start
			s.mismatch("a whole number")
			return 0
		}
	}
	if !s.broken && (!ok || n < low || n > high) {
		s.bad("field " + strconv.Quote(truncate(string(s.name), maxSymbol)) + " is out of range")
		return 0
	}
	return n
}

// digits reads the integer part of a number; ok is false if it overflows.
func (s *scanner) digits() (n int64, ok bool) {
	negative := s.line[s.at] == '-'
	if negative {
		s.at++
	}
	start := s.at
	ok = true
	for s.at < len(s.line) && isDigit(s.line[s.at]) {
		d := int64(s.line[s.at] - '0')
		if n < (minInt64+d)/10 { // counted downwards: the range is larger there
			ok = false
		}
		n = n*10 - d
		s.at++
	}
	if s.at == start || (s.line[start] == '0' && s.at > start+1) {
		s.syntax("a malformed number")
		return 0, false
	}
	if !negative {
		ok = ok && n != minInt64
		n = -n
	}
	return n, ok
}

func (s *scanner) millis() time.Duration {
	return time.Duration(s.integer(0, maxDelay.Milliseconds())) * time.Millisecond
}

// raw reads any one value, checks that Postgres can keep it, and returns a copy
// of its bytes as they are.
func (s *scanner) raw() []byte {
	s.peek()
	start := s.at
	s.pass(grammar.Payload(s.line, s.at))
	if s.broken {
		return nil
	}
	return append(make([]byte, 0, s.at-start), s.line[start:s.at]...)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
