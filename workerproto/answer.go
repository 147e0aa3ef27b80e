package workerproto

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Answer ends a request. It contains the result or, after a failure, the code of a
// problem.
//
//	{"op":"answer","id":7,"worker":"w1","result":{"pages":3}}
//	{"op":"answer","id":8,"code":"queue-full","message":"…","retry_after_ms":1000}
type Answer struct {
	sentByDispatcher

	ID         int64
	Job        dispatcherd.JobID // the row of a durable request; 0 = none
	Via        string            // "queue": the request became that row because another dispatcher has the slots
	Worker     string            // name of the worker that ran the job; "" = none
	Result     []byte            // JSON; not set in an answer with a code
	Code       string            // the name of a problem in docs/reference/api.md; "" = success
	Message    string            // for people
	RetryAfter time.Duration     // time after which another try makes sense; 0 = unknown
}

// Size returns an upper bound of the frame's length in bytes.
func (m *Answer) Size() int {
	return len(m.Result) + 6*(len(m.Worker)+min(len(m.Message), MaxMessageLength)) + 256
}

func (m *Answer) members(c *codec) {
	c.op("answer")
	integer(c, "id", &m.ID, required)
	integer(c, "job", &m.Job, optional)
	symbol(c, "via", &m.Via, maxSymbol, optional)
	symbol(c, "worker", &m.Worker, unbounded, optional)
	c.raw("result", &m.Result, optional)
	symbol(c, "code", &m.Code, unbounded, optional)
	c.text("message", &m.Message, MaxMessageLength, optional)
	c.millis("retry_after_ms", &m.RetryAfter, optional)
}
