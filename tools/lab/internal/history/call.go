package history

import "time"

// Call is one on-demand request from the point of view of its caller.
type Call struct {
	Work       Work
	Manner     Manner
	Daemon     string // dispatcher to which it was sent
	Begun      int64
	Ended      int64
	Timeout    time.Duration // timeout that it asked for
	Refused    bool          // the dispatcher did not listen because it was starting, stopping or dead
	Status     int           // status of the answer; 0 = refused, the connection broke, or no answer came for much longer than the timeout
	RetryAfter bool
	Problem    string // type of the problem document, if the answer was one
	Result     *Result
}

// Manner is the way in which a caller waits.
type Manner string

// The manners. A durable request is a row of the table. The caller of an
// asynchronous request gets the id of the row at once and does not wait.
const (
	InMemory Manner = "memory"
	Durable  Manner = "durable"
	Async    Manner = "async"
)
