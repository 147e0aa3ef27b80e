package workerproto

import (
	"bytes"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// task is what a codec does with the members of a frame.
type task uint8

const (
	encoding task = iota // append each member
	decoding             // read the member whose name was read, if it is this one
	checking             // report the member if it is required and missing
)

// codec encodes, decodes or checks one frame at a time. The method members of a
// frame lists its members once, in the order in which they are sent. It calls a
// function of members.go for each member, and the codec's task decides what the
// function does. The zero value is ready. Not safe for concurrent use.
//
// After a syntax error the codec returns zero values. After an invalid value it
// continues decoding, so that the job of the frame becomes known.
type codec struct {
	task task
	out  []byte // the encoded frame

	jsontext.Scanner
	names names
	key   []byte // name of the next member, or nil
	fault string // the first invalid value; "" = none
	unfit bool   // the first invalid value is a raw value
	ops   int    // members called "op" in the frame
}

// membered has members: a frame, or an object in a frame.
type membered interface{ members(c *codec) }

// frame is implemented by the frames of all directions.
type frame = membered

// Append appends f as one line, newline included, and returns the extended
// buffer. Raw JSON in the frame must be valid (see [CheckJSON]).
func Append(dst []byte, f frame) []byte {
	c := encoders.Get().(*codec)
	buffer := c.out
	c.out = dst
	c.encode(f)
	dst, c.out = c.out, buffer
	encoders.Put(c)
	return dst
}

// encoders is a pool of codecs with their buffers, so that an idle connection has
// none.
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
		c.out[begin] = '{' // written instead of the first comma
		c.out = append(c.out, '}')
	case c.expect(c.Peek() == '{', "an object"):
		c.name(c.Begin('{'))
		c.rest(m)
	}
}

// rest decodes the members, beginning with the one whose name was read. One pass
// over the list of members decodes all that come in the order of sending. If a pass
// decodes none, the member is unknown.
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

// decode decodes one line into the frame that newFrame makes for its op. With an
// error the frame, which may be nil, is filled as far as the line could be read.
func decode[F frame](c *codec, line []byte, newFrame func(op []byte) (F, bool)) (f F, err *Error) {
	op := c.begin(line)
	if op == nil {
		if op, err = c.findOp(); err != nil {
			return f, err
		}
		c.begin(line)
	}
	f, known := newFrame(op)
	if !known {
		c.end(&Drain{}) // malformed JSON is the more useful error
		if c.Malformed() {
			return f, c.err()
		}
		return f, Complain(UnknownOp, 0, "no frame %q in this direction", truncate(string(op), maxSymbol))
	}
	c.end(f)
	return f, c.check(f)
}

// begin starts to decode a line, which must be an object. It returns the op if that
// is the first member, as in almost all frames.
func (c *codec) begin(line []byte) (op []byte) {
	c.task, c.fault, c.unfit, c.ops, c.key = decoding, "", false, 0, nil
	c.Scanner = jsontext.NewScanner(line)
	op = leadingOp(line)
	switch {
	case !utf8.Valid(line):
		c.Fail("bytes that are not UTF-8")
	case op != nil:
		c.Advance(len(leading) + len(op) + len(`"`))
		c.ops = 1
		c.next()
	case c.Peek() != '{':
		c.Fail("no object")
	default:
		c.name(c.Begin('{'))
	}
	return op
}

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
	if n, ok := f.(named); ok && err != nil {
		err.Job = n.execution().Job
	}
	return err
}

// leading precedes the op of a frame that begins with it.
const leading = `{"op":"`

// leadingOp returns the op of a frame that begins with it, as almost all do.
func leadingOp(line []byte) []byte {
	rest, begins := bytes.CutPrefix(line, []byte(leading))
	end := bytes.IndexByte(rest[:min(len(rest), maxSymbol)], '"')
	if !begins || end < 0 {
		return nil
	}
	for _, b := range rest[:end] {
		if !jsontext.Plain(b) {
			return nil
		}
	}
	return rest[:end]
}

// findOp reads a frame that does not begin with its op.
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
// precedence.
func (c *codec) err() *Error {
	switch {
	case c.Malformed():
		return Complain(BadJSON, 0, "%s at byte %d; a frame is one JSON object on one line", c.Fault().What, c.Offset())
	case c.fault != "":
		return Complain(BadValue, 0, "%s", c.fault)
	}
	return nil
}

// notSendable reports whether the only fault is that a worker cannot be sent a raw
// value, although it is JSON.
func (c *codec) notSendable() bool { return c.unfit && (!c.Malformed() || c.Fault().TooDeep()) }

// bad records an invalid value.
func (c *codec) bad(message string) {
	if c.fault == "" {
		c.fault = message
	}
}

// badMember records a fault of the value of the member that is being read.
func (c *codec) badMember(what string) {
	c.bad("field " + strconv.Quote(truncate(string(c.key), maxSymbol)) + " " + what)
}

// require reports a member that is missing, once all were decoded.
func (c *codec) require(ok bool, name string) {
	if !ok && c.task == checking {
		c.bad("field \"" + name + "\" is missing or zero")
	}
}
