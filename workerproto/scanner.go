package workerproto

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

const (
	maxInt32 = math.MaxInt32
	minInt64 = math.MinInt64
	maxInt64 = math.MaxInt64

	maxDelay  = 366 * 24 * time.Hour // of any duration in a frame
	maxNonce  = 64                   // bytes of a session nonce
	maxSymbol = 32                   // bytes of a code, level or mode

	// unbounded is the limit of strings whose length is checked later, with a
	// better message.
	unbounded = math.MaxInt32
)

// MaxMessageLength is the number of bytes kept of a message, reason or other
// text for people; longer texts are cut.
const MaxMessageLength = 8 << 10

// scanner reads the values of one frame. After a fault of syntax it delivers
// zero values. After a fault of value it continues, so that the job of the frame
// becomes known.
type scanner struct {
	jsontext.Scanner

	fault    string // the first fault of value; "" = none
	name     []byte // of the member being read, for messages
	ops      int    // members called "op" in the frame
	unfit    bool   // the first fault is in a raw value
	seenSlot bool   // a slot number was given (0 is a number)
	names    *names
}

// err returns what is wrong with the frame. A fault of syntax takes precedence.
func (s *scanner) err() *Error {
	switch {
	case s.Malformed():
		return Complain(BadJSON, 0, "%s at byte %d; a frame is one JSON object on one line", s.Fault().What, s.Offset())
	case s.fault != "":
		return Complain(BadValue, 0, "%s", s.fault)
	}
	return nil
}

// bad records a fault of value.
func (s *scanner) bad(message string) {
	if s.fault == "" {
		s.fault = message
	}
}

// mismatch skips a value of the wrong JSON type.
func (s *scanner) mismatch(want string) {
	s.bad("field " + s.quotedName() + " must be " + want)
	s.Skip()
}

func (s *scanner) quotedName() string { return strconv.Quote(truncate(string(s.name), maxSymbol)) }

func (s *scanner) require(ok bool, field string) {
	if !ok {
		s.bad("field \"" + field + "\" is missing or zero")
	}
}

// unknown skips a member that the frame does not know, and counts the one that
// names the frame.
func (s *scanner) unknown(key []byte) {
	if string(key) == "op" {
		s.ops++
	}
	s.Skip()
}

// object passes every member of an object to m.
func (s *scanner) object(m interface{ field([]byte, *scanner) }) {
	switch s.Peek() {
	case '{':
		s.members(m)
	default:
		if !s.null() {
			s.mismatch("an object")
		}
	}
}

// members reads an object, whose opening bracket is the next byte.
func (s *scanner) members(m interface{ field([]byte, *scanner) }) {
	for more := s.Begin('{'); more; more = s.More('}') {
		s.name = s.Name()
		if s.Malformed() {
			return
		}
		m.field(s.name, s)
	}
}

// array reports whether an array with at least one element begins here; after
// each element s.More(']') reports whether another one follows.
func (s *scanner) array() bool {
	if s.Peek() != '[' {
		if !s.null() {
			s.mismatch("an array")
		}
		return false
	}
	return s.Begin('[')
}

// null skips a null, which counts as an absent member.
func (s *scanner) null() bool {
	if s.Peek() != 'n' {
		return false
	}
	s.Skip()
	return true
}

func (s *scanner) boolean(absent bool) bool {
	switch s.Peek() {
	case 't':
		s.Skip()
		return true
	case 'f':
		s.Skip()
		return false
	}
	if !s.null() {
		s.mismatch("true or false")
	}
	return absent
}

// integer reads a whole number without fraction and exponent.
func (s *scanner) integer(low, high int64) int64 {
	c := s.Peek()
	if c != '-' && (c < '0' || c > '9') {
		if !s.null() {
			s.mismatch("a whole number")
		}
		return 0
	}
	text := s.Value()
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case s.Malformed():
		return 0
	case errors.Is(err, strconv.ErrSyntax):
		s.bad("field " + s.quotedName() + " must be a whole number")
		return 0
	case err != nil || n < low || n > high:
		s.bad("field " + s.quotedName() + " is out of range")
		return 0
	}
	return n
}

func (s *scanner) millis() time.Duration {
	return time.Duration(s.integer(0, maxDelay.Milliseconds())) * time.Millisecond
}

// bytes reads a string. The result is valid as long as the line.
func (s *scanner) bytes() []byte {
	if s.Peek() != '"' {
		if !s.null() {
			s.mismatch("a string")
		}
		return nil
	}
	return s.String()
}

// text reads a string for people and cuts it to limit bytes.
func (s *scanner) text(limit int) string {
	b := s.bytes()
	if len(b) <= limit {
		return string(b)
	}
	return truncate(string(b[:limit+1]), limit)
}

// symbol reads a string that occurs in many frames: a nonce, a type, a level. A
// string longer than limit is a fault.
func (s *scanner) symbol(limit int) string {
	b := s.bytes()
	if len(b) > limit {
		s.bad("field " + s.quotedName() + " is too long")
		return ""
	}
	return s.names.intern(b)
}

// symbols reads an array of strings.
func (s *scanner) symbols() []string {
	var list []string
	for more := s.array(); more; more = s.More(']') {
		list = append(list, s.symbol(unbounded))
	}
	return list
}

// notSendable reports whether the only fault is that a worker cannot be sent a raw
// value, although it is JSON.
func (s *scanner) notSendable() bool { return s.unfit && (!s.Malformed() || s.Fault().TooDeep()) }

// raw reads any one value, checks that Postgres can store it, and returns a copy
// of its text.
func (s *scanner) raw() []byte {
	before := s.Fault().What
	text := s.Payload()
	what := s.Fault().What
	s.unfit = s.unfit || what != before && s.fault == ""
	if s.Malformed() {
		return nil
	}
	if what != before {
		s.bad("field " + s.quotedName() + " contains " + what)
	}
	return append(make([]byte, 0, len(text)), text...)
}
