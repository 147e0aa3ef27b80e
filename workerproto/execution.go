package workerproto

import (
	"strconv"

	"github.com/dispatcherd/dispatcherd"
)

// Execution identifies one execution of a job in one session. Every frame about a
// job contains one. The attempt fences the row in Postgres. The session nonce fences
// the connection. The members on the wire are "job", "attempt" and "session".
type Execution struct {
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Session string // nonce of the session, 32 hexadecimal digits
}

// named is implemented by all frames about a job.
type named interface{ execution() *Execution }

func (e *Execution) execution() *Execution { return e }

func (e *Execution) members(c *codec) {
	integer(c, "job", &e.Job, minInt64, maxInt64, required)
	integer(c, "attempt", &e.Attempt, 0, maxInt32, required)
	symbol(c, "session", &e.Session, maxNonce, required)
}

// begin lists the members that every frame about a job begins with.
func (e *Execution) begin(c *codec, op string) {
	if c.task == encoding {
		c.out = e.appendTo(c.out, op)
		return
	}
	c.op(op)
	e.members(c)
}

// appendTo is the encoding part of begin. Almost all frames are jobs and their
// reports, so it does not use the slower functions of members.go.
func (e *Execution) appendTo(dst []byte, op string) []byte {
	dst = append(append(append(dst, `,"op":"`...), op...), `","job":`...)
	dst = strconv.AppendInt(dst, int64(e.Job), 10)
	dst = strconv.AppendInt(append(dst, `,"attempt":`...), int64(e.Attempt), 10)
	return appendString(append(dst, `,"session":`...), e.Session)
}
