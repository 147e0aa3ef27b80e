package workerproto

import (
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// task is what a codec does with the members of a frame.
type task uint8

const (
	encoding task = iota // append each member
	decoding             // decode the value if the name that was read is the name of this member
	checking             // report the member if it is required and missing
)

// codec encodes, decodes or checks one frame at a time. The method members of a frame
// lists the members of the frame once, in the order of sending. It calls a function of
// members.go for each member. The task of the codec decides what this function does.
// The zero value is ready to use. A codec is not safe for concurrent use.
//
// After a syntax error the codec returns zero values. After an invalid value it
// continues to decode, so that the error can name the job.
type codec struct {
	task    task
	out     []byte // the encoded frame
	session string // the nonce of the session: of encoded frames about a job that name none, and of most decoded ones; may be empty

	jsontext.Scanner
	key   []byte // name of the next member, or nil
	fault string // the first invalid value; "" = none
	unfit bool   // the first invalid value is a raw value; after check: and it is JSON, but cannot be sent to a worker
	ops   int    // members called "op" in the frame
}

// membered is a frame, or an object in a frame.
type membered interface{ members(c *codec) }

// frame is implemented by the frames of all directions.
type frame = membered

// Append appends f as one line, newline included, and returns the extended
// buffer. Raw JSON in the frame must be valid (see [CheckJSON]).
func Append(dst []byte, f frame) []byte {
	c := codec{out: dst}
	c.encode(f)
	return c.out
}

// encoders is a pool of codecs and their buffers. All connections use it, so that an
// idle connection holds no buffer.
var encoders = sync.Pool{New: func() any { return &codec{out: make([]byte, 0, batchBuffer)} }}

// encode appends a frame and the newline.
func (c *codec) encode(f frame) {
	c.task = encoding
	c.object(f)
	c.out = append(c.out, '\n')
}

// object encodes or decodes one object.
func (c *codec) object(m membered) {
	switch {
	case c.task == encoding:
		begin := len(c.out)
		m.members(c)
		c.out[begin] = '{' // replaces the comma before the first member
		c.out = append(c.out, '}')
	case c.expect(c.Peek() == '{', "an object"):
		c.name(c.Begin('{'))
		c.rest(m)
	}
}

// rest decodes the remaining members of an object. The name of the first of them was
// already read. One call of m.members decodes all members that come in the order of
// sending. If a call decodes nothing, the next member is unknown, and rest skips it.
func (c *codec) rest(m membered) {
	for c.key != nil {
		at := c.Offset()
		m.members(c)
		if c.Offset() == at {
			c.Skip()
			c.next()
		}
	}
}

// next continues after the value of a member.
func (c *codec) next() { c.name(c.More('}')) }

// name reads the name of the next member, if there is one.
func (c *codec) name(more bool) {
	c.key = nil
	if more {
		c.key = c.Name()
	}
}

// begin starts to decode a line, which must be an object. It returns the op if the op
// is the first member, as in almost all frames. Otherwise it returns nil.
func (c *codec) begin(line []byte) (op []byte) {
	c.task, c.fault, c.unfit, c.ops, c.key = decoding, "", false, 0, nil
	c.Scanner = jsontext.NewScanner(line)
	switch {
	case !utf8.Valid(line):
		c.Fail("bytes that are not UTF-8")
	case c.Peek() != '{':
		c.Fail("no object")
	default:
		c.name(c.Begin('{'))
	}
	if c.reads("op") {
		c.ops = 1
		op = c.readString()
		c.next()
	}
	return op
}

// release drops the line, so that an idle connection holds no buffer.
func (c *codec) release() { c.Scanner, c.key = jsontext.Scanner{}, nil }

// end decodes the members of a line and checks that nothing follows.
func (c *codec) end(m membered) {
	c.rest(m)
	c.End()
}

// check returns an error about a decoded frame, if there is one.
func (c *codec) check(f frame) *Error {
	if !c.Malformed() {
		if c.ops > 1 {
			c.bad("field \"op\" is given twice")
		}
		c.task = checking
		f.members(c)
	}
	err := c.err()
	c.unfit = c.unfit && (!c.Malformed() || c.Fault().TooDeep())
	if n, ok := f.(named); ok && err != nil {
		err.Job = n.execution().Job
	}
	return err
}

// findOp finds the op in a line whose first member is another one.
func (c *codec) findOp() (op []byte, err *Error) {
	found := false
	for c.key != nil {
		if c.reads("op") {
			op, found = c.readString(), true
		} else {
			c.Skip()
		}
		c.next()
	}
	c.End()
	if !found {
		c.bad("field \"op\" is missing")
	}
	return op, c.err()
}

// err returns an error about the frame, if there is one. A syntax error takes
// precedence over an invalid value.
func (c *codec) err() *Error {
	switch {
	case c.Malformed():
		return Complain(BadJSON, "%s at byte %d; a frame is one JSON object on one line", c.Fault().What, c.Offset())
	case c.fault != "":
		return Complain(BadValue, "%s", c.fault)
	}
	return nil
}

// bad records an invalid value.
func (c *codec) bad(message string) {
	if c.fault == "" {
		c.fault = message
	}
}

// badMember records that the value of the current member is invalid.
func (c *codec) badMember(what string) {
	c.bad("field " + strconv.Quote(truncate(string(c.key), maxSymbol)) + " " + what)
}

// require records that a member is missing. It has an effect only in the task checking.
func (c *codec) require(ok bool, name string) {
	if !ok && c.task == checking {
		c.bad("field \"" + name + "\" is missing or zero")
	}
}
