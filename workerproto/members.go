package workerproto

import (
	"errors"
	"math"
	"strconv"
	"time"
	"unique"
)

const (
	anyNumber = math.MinInt64 // the lowest value of a number that may be negative

	maxDelay  = 366 * 24 * time.Hour // longest duration in a frame
	maxNonce  = 64                   // bytes of a session nonce
	maxSymbol = 32                   // bytes of a code, level or mode

	// unbounded is the limit of strings whose length is checked after decoding, with
	// a better message.
	unbounded = math.MaxInt32
)

// MaxMessageLength is the largest number of bytes of a message, a reason or another
// text for people. Longer texts are cut.
const MaxMessageLength = 8 << 10

// presence says when a member is sent, and whether a frame without it is an error.
type presence uint8

const (
	optional presence = iota // sent unless it is zero
	always                   // sent even if it is zero
	required                 // sent; a frame in which it is missing or zero is an error
)

// reads reports whether the next value of the line is that of the member.
func (c *codec) reads(name string) bool { return c.task == decoding && string(c.key) == name }

// writes appends the name of the member and returns true while the codec encodes a
// frame and the caller must append the value. While the codec checks a frame, writes
// records a fault if the member is required and zero. In all other cases it does
// nothing and returns false.
func (c *codec) writes(name string, zero bool, when presence) bool {
	if c.task != encoding {
		c.require(!zero || when != required, name)
		return false
	}
	if zero && when == optional {
		return false
	}
	c.out = append(append(append(c.out, `,"`...), name...), `":`...)
	return true
}

// op is the member that names the frame. Its value is skipped, because it is known.
func (c *codec) op(name string) {
	switch {
	case c.reads("op"):
		c.ops++
		c.Skip()
		c.next()
	case c.task == encoding:
		c.out = append(append(append(c.out, `,"op":"`...), name...), '"')
	}
}

// The functions below encode, decode or check one member of a frame. Those that return
// read report whether they decoded the member.

// whole are the types of whole numbers.
type whole interface{ ~int | ~int8 | ~int32 | ~int64 }

// integer is a whole number of at least 0, without fraction and exponent.
func integer[T whole](c *codec, name string, p *T, when presence) { number(c, name, p, 0, when) }

// number is integer with another lowest value.
func number[T whole](c *codec, name string, p *T, low int64, when presence) {
	switch {
	case c.reads(name):
		*p = readInteger[T](c, low)
		c.next()
	case c.writes(name, *p == 0, when):
		c.out = strconv.AppendInt(c.out, int64(*p), 10)
	}
}

// millis is a duration in whole milliseconds.
func (c *codec) millis(name string, p *time.Duration, when presence) {
	switch {
	case c.reads(name):
		n := readInteger[int64](c, 0)
		if n > maxDelay.Milliseconds() {
			c.badMember(outOfRange)
			n = 0
		}
		*p = time.Duration(n) * time.Millisecond
		c.next()
	case c.writes(name, *p < time.Millisecond, when):
		c.out = strconv.AppendInt(c.out, max(p.Milliseconds(), 0), 10)
	}
}

// boolean is true or false. absent is the value of a missing member. An optional member
// with this value is not sent.
func (c *codec) boolean(name string, p *bool, absent bool, when presence) (read bool) {
	switch {
	case c.reads(name):
		*p = absent
		if b := c.Peek(); c.expect(b == 't' || b == 'f', "true or false") {
			*p = b == 't'
			c.Skip()
		}
		c.next()
		return true
	case c.writes(name, *p == absent, when):
		c.out = strconv.AppendBool(c.out, *p)
	}
	return false
}

// text is a string for people. It is cut to limit bytes.
func (c *codec) text(name string, p *string, limit int, when presence) {
	switch {
	case c.reads(name):
		b := c.readString()
		*p = truncate(string(b[:min(len(b), limit+1)]), limit)
		c.next()
	case c.writes(name, *p == "", when):
		c.out = appendString(c.out, truncate(*p, limit))
	}
}

// symbol is a string that programs compare, such as a nonce, a type or a level. A
// symbol of more than limit bytes is a fault.
func symbol[T ~string](c *codec, name string, p *T, limit int, when presence) (read bool) {
	switch {
	case c.reads(name):
		b := c.readString()
		if len(b) > limit {
			c.badMember("is too long")
			b = nil
		}
		*p = T(c.known(b))
		c.next()
		return true
	case c.writes(name, *p == "", when):
		c.out = appendString(c.out, string(*p))
	}
	return false
}

// known returns b as a string. The nonce of the session and the mode of most jobs, which many frames contain, allocate nothing.
func (c *codec) known(b []byte) string {
	if string(b) == c.session {
		return c.session
	}
	if string(b) == queued {
		return queued
	}
	return string(b)
}

// raw is any JSON value that Postgres can store. An empty *p is not sent.
func (c *codec) raw(name string, p *[]byte, when presence) {
	switch {
	case c.task == encoding && len(*p) == 0:
	case c.reads(name):
		*p = c.readRaw()
		c.next()
	case c.writes(name, len(*p) == 0, when):
		c.out = appendRaw(c.out, *p)
	}
}

// nested is an object in a frame. It is always sent.
func (c *codec) nested(name string, m membered) {
	switch {
	case c.reads(name):
		c.object(m)
		c.next()
	case c.writes(name, false, always):
		c.object(m)
	}
}

// list is an array. element encodes or decodes one element. A decoded element starts as
// a copy of blank.
func list[T any](c *codec, name string, p *[]T, blank T, element func(*codec, *T), when presence) (read bool) {
	switch {
	case c.reads(name):
		*p = nil
		key := c.key // the name of the list, for messages; decoding an element may replace c.key
		for more := c.expect(c.Peek() == '[', "an array") && c.Begin('['); more; more = c.More(']') {
			e := blank
			c.key = key
			element(c, &e)
			*p = append(*p, e)
		}
		c.next()
		return true
	case c.writes(name, len(*p) == 0, when):
		c.out = append(c.out, '[')
		for i := range *p {
			if i > 0 {
				c.out = append(c.out, ',')
			}
			element(c, &(*p)[i])
		}
		c.out = append(c.out, ']')
	}
	return false
}

// listed is an object in a list. Its required members are checked directly after it was
// decoded, because the task checking does not visit the elements of lists.
func listed[T any, M interface {
	*T
	membered
}](c *codec, p *T) {
	c.object(M(p))
	if c.task == decoding {
		c.task = checking
		M(p).members(c)
		c.task = decoding
	}
}

// listedInteger is an integer in a list.
func listedInteger[T whole](c *codec, p *T) {
	if c.task == encoding {
		c.out = strconv.AppendInt(c.out, int64(*p), 10)
	} else {
		*p = readInteger[T](c, 0)
	}
}

// listedSymbol is a string in a list.
func listedSymbol(c *codec, p *string) {
	if c.task == encoding {
		c.out = appendString(c.out, *p)
		return
	}
	*p = unique.Make(string(c.readString())).Value() // most slots of a worker have the same types
}

// versions are the lowest and the highest version of the protocol that a peer speaks.
func (c *codec) versions(lowest, highest *int) {
	both := []int{*lowest, *highest}
	if list(c, "versions", &both, 0, listedInteger, always) {
		if len(both) != 2 || both[0] > both[1] {
			c.bad("field \"versions\" must be [lowest, highest]")
			return
		}
		*lowest, *highest = both[0], both[1]
	}
	c.require(*lowest > 0, "versions")
}

// expect returns right, which says whether the next value has the right type. If right
// is false, expect skips the value. A null then counts as an absent member. Any other
// value is a fault.
func (c *codec) expect(right bool, want string) bool {
	if !right {
		c.mismatch(want)
	}
	return right
}

func (c *codec) mismatch(want string) {
	if c.Peek() != 'n' {
		c.badMember("must be " + want)
	}
	c.Skip()
}

const outOfRange = "is out of range"

// readInteger reads a whole number from low to the largest one of its type.
func readInteger[T whole](c *codec, low int64) T {
	if b := c.Peek(); !c.expect(b == '-' || '0' <= b && b <= '9', "a whole number") {
		return 0
	}
	n, err := c.Integer()
	switch {
	case c.Malformed():
	case errors.Is(err, strconv.ErrSyntax):
		c.badMember("must be a whole number")
	case err != nil || n < low || int64(T(n)) != n:
		c.badMember(outOfRange)
	default:
		return T(n)
	}
	return 0
}

// readString reads a string. The result is valid as long as the line is.
func (c *codec) readString() []byte {
	if !c.expect(c.Peek() == '"', "a string") {
		return nil
	}
	return c.String()
}

// readRaw reads one value of any type and returns a copy of its text.
func (c *codec) readRaw() []byte {
	before := c.Fault().What
	text := c.Payload()
	what := c.Fault().What
	c.unfit = c.unfit || what != before && c.fault == ""
	if c.Malformed() {
		return nil
	}
	if what != before {
		c.badMember("contains " + what)
	}
	return append(make([]byte, 0, len(text)), text...)
}
