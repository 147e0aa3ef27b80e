package workerproto

import (
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

// Error is both a frame from the dispatcher and the Go error that says why a frame
// was rejected or a session ended. After a fatal error the dispatcher closes the
// connection. After any other error the session continues, and the rejected frame has
// no effect. Exception: an invalid done, fail or release fails the execution that it
// names.
//
//	{"op":"error","code":"wrong_session","message":"…","fatal":false,"job":42}
type Error struct {
	sentByDispatcher

	Code    Code
	Message string // for people: what is wrong, which value, what to do; never a payload
	Fatal   bool
	Job     dispatcherd.JobID // the job that the refused frame was about; 0 = none
}

// Code is the rule that was broken. A version of the protocol has a fixed list of
// codes.
type Code string

// The codes. Before the welcome every error is fatal.
const (
	BadJSON   Code = "bad_json"   // the line is not a JSON object, is nested too deep, or is not UTF-8
	BadValue  Code = "bad_value"  // a field is missing, of the wrong kind or out of range
	UnknownOp Code = "unknown_op" // no such frame in this direction
	// BadSlot: no types, an invalid or repeated type, a number that is taken, too many slots or types, a type that this
	// user may not serve.
	BadSlot      Code = "bad_slot"
	UnknownSlot  Code = "unknown_slot"  // slot_remove of a number that the session does not have
	NotHeld      Code = "not_held"      // a report about a job that this session does not run
	WrongSession Code = "wrong_session" // a report under another session's nonce
	DuplicateID  Code = "duplicate_id"  // a request with the id of an open request of this session
	Draining     Code = "draining"      // slot_add after drain

	NotHello           Code = "not_hello"            // fatal: the first frame is not a hello
	SecondHello        Code = "second_hello"         // fatal: a hello after the first frame
	BadVersion         Code = "version"              // fatal: no common version
	FrameTooLong       Code = "frame_too_long"       // fatal: the rest of the line is not read
	SlowReader         Code = "slow_reader"          // fatal: the peer does not read, or reads too slowly
	HelloTimeout       Code = "hello_timeout"        // fatal: no hello in time
	HeartbeatTimeout   Code = "heartbeat_timeout"    // fatal: the peer was silent for too long
	CancelIgnored      Code = "cancel_ignored"       // fatal: a job continued after its cancel
	TooManyConnections Code = "too_many_connections" // fatal: the limit is reached; try again later
	Refused            Code = "refused"              // fatal: the dispatcher does not allow this worker
	ShuttingDown       Code = "shutting_down"        // fatal: the dispatcher stops; reconnect
	Internal           Code = "internal"             // fatal: an error of the dispatcher
)

// Codes lists every code in alphabetical order.
func Codes() []Code { return slices.Sorted(slices.Values(slices.Concat(openCodes, fatalCodes))) }

// The codes of errors after which an open session continues, and those after which it ends.
var (
	openCodes  = []Code{BadJSON, BadValue, UnknownOp, BadSlot, UnknownSlot, NotHeld, WrongSession, DuplicateID, Draining}
	fatalCodes = []Code{
		NotHello, SecondHello, BadVersion, FrameTooLong, SlowReader, HelloTimeout, HeartbeatTimeout, CancelIgnored, TooManyConnections,
		Refused, ShuttingDown, Internal,
	}
)

// Complain returns an Error. The code decides whether the error is fatal.
func Complain(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Fatal: slices.Contains(fatalCodes, code)}
}

// About sets the job that the refused frame was about, and returns the error.
func (m *Error) About(job dispatcherd.JobID) *Error {
	m.Job = job
	return m
}

// Error returns code and message.
func (m *Error) Error() string { return string(m.Code) + ": " + m.Message }

func (m *Error) members(c *codec) {
	c.op("error")
	symbol(c, "code", &m.Code, maxSymbol, required)
	c.text("message", &m.Message, MaxMessageLength, always)
	c.boolean("fatal", &m.Fatal, false, always)
	number(c, "job", &m.Job, anyNumber, optional)
}
