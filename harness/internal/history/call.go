package history

import "time"

// Call is one on-demand request, as its caller saw it.
type Call struct {
	Work       Work
	Manner     Manner
	Daemon     string // who was asked
	Begun      int64
	Ended      int64
	Timeout    time.Duration // that it asked for
	Refused    bool          // the dispatcher did not listen: it starts, stops, or is dead
	Status     int           // of the answer; 0 = refused, the connection broke, or none came for much longer than the timeout
	RetryAfter bool
	Problem    string // type of the problem, if it was one
	Result     *Result
}

// Manner is how a caller asks.
type Manner string

// Manners. Durable ones are rows of the table; asynchronous ones are told the
// row's number at once and do not wait.
const (
	InMemory Manner = "memory"
	Durable  Manner = "durable"
	Async    Manner = "async"
)
